from __future__ import annotations

import sys

import pytest

from recsys_emb.errors import MissingDependencyError
from recsys_emb.integrations.ray import Ray


def test_without_ray_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError) as caught:
        Ray()
    assert str(caught.value) == ("Ray: expected Ray to be installed, got none. Run: pip install 'recsys-emb[ray]'")
