"""What a trained model needs to answer: a memory of users and items, exact scores, checked requests."""
