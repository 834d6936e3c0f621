#!/usr/bin/env python3
"""Two network interfaces joined by a link that is slow and loses packets. It replaces netem where the kernel has only
tun. The interfaces can be moved to other namespaces afterwards. SIGUSR1 cuts the link, SIGUSR2 restores it.

Usage: lossy_link.py INTERFACE INTERFACE DELAY_MS LOSS_PERCENT     (prints "ready" once the interfaces exist)
"""
import collections
import fcntl
import os
import random
import select
import signal
import struct
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TUN_NO_PI = 0x1001
PACKETS_MAX = 2000  # on their way in one direction; a full queue drops packets


def open_interface(name):
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN_NO_PI))
    return fd


def receive(fd, underway, due, lost):
    """Takes the packets that were sent to this end. Drops those for which lost() is true."""
    while True:
        try:
            packet = os.read(fd, 65536)
        except OSError:  # no more packets, or the interface is down
            return
        if len(underway) < PACKETS_MAX and not lost():
            underway.append((due, packet))


def deliver(fd, underway, now):
    while underway and underway[0][0] <= now:
        try:
            os.write(fd, underway.popleft()[1])
        except OSError:
            pass


def main():
    ends = [open_interface(name) for name in sys.argv[1:3]]
    delay, loss = float(sys.argv[3]) / 1000, float(sys.argv[4]) / 100
    underway = [collections.deque(), collections.deque()]  # [i]: packets from ends[i]
    cut = [False]
    signal.signal(signal.SIGUSR1, lambda *_: cut.__setitem__(0, True))
    signal.signal(signal.SIGUSR2, lambda *_: cut.__setitem__(0, False))
    draw = random.Random(11)
    print("ready", flush=True)
    while True:
        dues = [queue[0][0] for queue in underway if queue]
        wait = max(0.0, min(dues) - time.monotonic()) if dues else 1.0
        select.select(ends, [], [], wait)
        now = time.monotonic()
        for i in (0, 1):
            receive(ends[i], underway[i], now + delay, lambda: cut[0] or draw.random() < loss)
            deliver(ends[1 - i], underway[i], now)


if __name__ == "__main__":
    main()
