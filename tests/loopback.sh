#!/bin/sh
# Run a command where no network is but this machine's own loopback: Ray listens on every interface that there is.
set -eu
if [ "$(id -u)" -ne 0 ] || ! unshare --net true 2>/dev/null; then
    echo "loopback.sh: expected to be root on Linux, to make a network namespace, got neither. Run it as root." >&2
    exit 1
fi
exec unshare --net sh -c '
    ip link set lo up 2>/dev/null || python3 -c "
import fcntl, socket, struct
SET_FLAGS, UP = 0x8914, 0x1
fcntl.ioctl(socket.socket(), SET_FLAGS, struct.pack(\"16sh\", b\"lo\", UP))"
    exec "$@"' sh "$@"
