#!/usr/bin/env python3
"""device_shell.py ROOT COMMAND: COMMAND by sh as a phone's shell has it: with 64 KiB of memory that may be locked, killed where it tries
io_uring; where root calls this, in ROOT and as nobody."""
import ctypes
import os
import resource
import struct
import sys

root, command = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
if os.getuid() == 0:
    os.chroot(root)
    os.chdir("/")
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)

LOAD, EQUAL, RETURN, KILL_PROCESS, ALLOW, IO_URING_SETUP = 0x20, 0x15, 0x06, 0x80000000, 0x7FFF0000, 425
lines = ((LOAD, 0, 0, 0), (EQUAL, 0, 1, IO_URING_SETUP), (RETURN, 0, 0, KILL_PROCESS), (RETURN, 0, 0, ALLOW))
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *x) for x in lines))


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]


program = Program(len(lines), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
NO_NEW_PRIVILEGES, SECCOMP, FILTER = 38, 22, 2
if libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.prctl(SECCOMP, FILTER, ctypes.byref(program), 0, 0):
    sys.exit("no seccomp: " + os.strerror(ctypes.get_errno()))
os.execve("/bin/sh", ["sh", "-c", command], {"PATH": "/bin:/usr/bin"})
