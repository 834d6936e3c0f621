#!/usr/bin/env python3
"""Two jobs that start at the same moment must not meet at one port: moerun claims its port until it ends, and takes
none that is claimed. Usage: moerun_port_test.py MOERUN [alone]
With `alone` it claims all ports. That is for a network of its own, where no other moerun runs."""
import contextlib
import errno
import resource
import socket
import subprocess
import sys

SKIPPED = 77
PORTS = range(20000, 32000, 2)


def claim(port):
    """The socket that claims a port; None if it is claimed."""
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0moerun-port-{port}")
    except OSError as error:
        name.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return name


def keeps_its_port(moerun):
    command = [moerun, "-n", "1", "--no-tag", "sh", "-c", "echo $MOECOMM_ROOT; exec sleep 60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as job:
        port = int(job.stdout.readline().rsplit(":", 1)[1])
        taken = claim(port)
        job.terminate()
    assert taken is None, f"port {port} was not claimed while the job ran"
    free = claim(port)
    assert free is not None, f"port {port} is still claimed after the job has ended"
    free.close()


def respects_claims(moerun):
    needed = len(PORTS) + 100
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        print(f"skipped: no more than {hard} descriptors")
        sys.exit(SKIPPED)
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    with contextlib.ExitStack() as claims:
        for port in PORTS:
            if (name := claim(port)) is not None:
                claims.enter_context(name)
        job = subprocess.run([moerun, "-n", "1", "true"], capture_output=True, text=True)
    assert job.returncode == 1 and "no free port found" in job.stderr, f"status {job.returncode}: {job.stderr}"


def in_a_network_of_its_own(*arguments):
    alone = ["unshare", "--map-root-user", "--net"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode != 0:
        print("skipped: unshare cannot make a network")
        return SKIPPED
    return subprocess.run([*alone, sys.executable, __file__, *arguments]).returncode


if sys.argv[2:] == ["alone"]:
    respects_claims(sys.argv[1])
else:
    keeps_its_port(sys.argv[1])
    sys.exit(in_a_network_of_its_own(sys.argv[1], "alone"))
