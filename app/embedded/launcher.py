"""Become a PostgreSQL program that dies with its parent: `launcher.py PARENT SIGNAL ACCOUNT COMMAND…`.

This runs as a script between fork and exec, and imports nothing of the application. It is a process of its own
instead of `preexec_fn`, because running Python between the fork and the exec of a program with threads may deadlock;
and what it does has to be done in the child, in this order: the kernel forgets the parent-death signal when the user
changes.

PARENT is the pid of the service, SIGNAL the number of the parent-death signal (0 for none), ACCOUNT is `uid:gid` or
`-` to stay who we are.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, death_signal: int, account: str, command: list[str]) -> None:
    """Change the user, bind our life to the parent's, and become the command."""
    if account != "-":
        uid, gid = (int(part) for part in account.split(":"))
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    if death_signal:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
        # A parent that died before the call above sends no signal any more, but has been replaced by another one.
        if os.getppid() != parent:
            sys.exit("the service ended before PostgreSQL started")
    # Python ignores these two, and what is ignored stays ignored across exec.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.umask(0o077)
    os.execv(command[0], command)  # noqa: S606  # no shell is wanted


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
