"""Servers and clients side by side: some stop receiving for a while, some are busy all the time but serve.

Prints `ROLE PID` for each, then `ready`. They live until standard input ends (the test's end).
"""
import ctypes, os, select, signal, socket, sys, threading, time

folder = sys.argv[1]
HANG = 2.5


def pair(kind, name):
    """A listening socket, and a way to connect to it."""
    if kind == "tcp":
        listener = socket.create_server(("127.0.0.1", 0))
        return listener, lambda: socket.create_connection(listener.getsockname())
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.path.join(folder, name))
    listener.listen()

    def connect():
        s = socket.socket(socket.AF_UNIX)
        s.connect(os.path.join(folder, name))
        return s

    return listener, connect


def fork(role, run):
    pid = os.fork()
    if pid == 0:
        # PR_SET_PDEATHSIG: nobody stays behind.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        try:
            run()
        finally:
            os._exit(0)
    if role:
        print(role, pid, flush=True)


def work(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def feed(connection, size, pause):
    """Send without waiting for an answer."""
    while True:
        connection.sendall(b"x" * size)
        time.sleep(pause)


def stops(kind, role):
    """Serves for two seconds, then does something else for a while, again and again."""
    listener, connect = pair(kind, role)

    def client():
        feed(connect(), 10, 0.02)

    def server():
        fork(None, client)
        s, _ = listener.accept()
        while True:
            end = time.monotonic() + 2
            while time.monotonic() < end:
                s.recv(4096)
            time.sleep(HANG)

    fork(role, server)


def busy(kind, role):
    """Never catches up with its client, whose messages fill the queue at all times."""
    listener, connect = pair(kind, role)

    def client():
        feed(connect(), 4096, 0)

    def server():
        fork(None, client)
        s, _ = listener.accept()
        while True:
            s.recv(4096)
            work(0.001)
            time.sleep(0.004)

    fork(role, server)


def window(role):
    """A client of a display whose main thread waits for another thread while events come."""
    listener, connect = pair("unix", "wayland-0")

    def display():
        s, _ = listener.accept()
        feed(s, 24, 0.05)

    def client():
        fork(None, display)
        s = connect()
        while True:
            end = time.monotonic() + 2
            while time.monotonic() < end:
                select.select([s], [], [], 0.5)
                s.recv(4096)
            slow = threading.Thread(target=time.sleep, args=(HANG,))
            slow.start()
            slow.join()

    fork(role, client)


def stale(role):
    """Has something in a connection that it never wants."""
    a, b = socket.socketpair()
    b.send(b"good bye")

    def keeps():
        while True:
            time.sleep(0.1)

    fork(role, keeps)


def accepts(kind, role, hang):
    """Listens. Accepts for two seconds, then does something else for a while; or a little slower than clients come."""
    listener, connect = pair(kind, role)
    if not hang:
        listener.listen(4)

    def client():
        kept = []
        while True:
            kept = kept[-20:] + [connect()]
            time.sleep(0.1 if hang else 0)

    def server():
        fork(None, client)
        while hang:
            end = time.monotonic() + 2
            while time.monotonic() < end:
                listener.accept()[0].close()
            time.sleep(HANG)
        while True:
            listener.accept()[0].close()
            time.sleep(0.005)

    fork(role, server)


stops("unix", "stops-unix")
stops("tcp", "stops-tcp")
busy("unix", "busy-unix")
busy("tcp", "busy-tcp")
window("window")
stale("stale")
accepts("unix", "accepts-unix", True)
accepts("tcp", "accepts-tcp", True)
accepts("unix", "accepts-busy", False)
print("ready", flush=True)
sys.stdin.read()
