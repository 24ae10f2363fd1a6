"""A client of an X server that reads its events, and stops to for a while when it is sent SIGUSR1.

Speaks the X protocol itself: asks for changes of the root window's properties, which another connection makes
all the time. Prints `ready` once it reads.
"""
import os, signal, socket, struct, sys, time

HANG = 4


def connect(display):
    s = socket.socket(socket.AF_UNIX)
    s.connect(f"/tmp/.X11-unix/X{display}")
    s.sendall(struct.pack("<BxHHHHxx", ord("l"), 11, 0, 0, 0))
    head = s.recv(8, socket.MSG_WAITALL)
    status, length = head[0], struct.unpack_from("<H", head, 6)[0]
    body = s.recv(4 * length, socket.MSG_WAITALL)
    assert status == 1, body
    vendor, formats = struct.unpack_from("<H", body, 16)[0], body[21]
    root = struct.unpack_from("<I", body, 32 + (vendor + 3) // 4 * 4 + 8 * formats)[0]
    return s, root


display = sys.argv[1]
if os.fork() == 0:
    s, root = connect(display)
    while True:
        # ChangeProperty: WM_NAME (39) of the root window, a STRING (31).
        s.sendall(struct.pack("<BBHIIIB3xI4s", 18, 0, 7, root, 39, 31, 8, 4, b"name"))
        time.sleep(0.05)
        if os.getppid() == 1:
            os._exit(0)

hang = False


def on(*_):
    global hang
    hang = True


signal.signal(signal.SIGUSR1, on)
s, root = connect(display)
# ChangeWindowAttributes: tell me of changed properties.
s.sendall(struct.pack("<BxHIII", 2, 4, root, 0x800, 0x400000))
print("ready", flush=True)
while True:
    if not s.recv(4096):
        sys.exit("the display is gone")
    if hang:
        hang = False
        time.sleep(HANG)
