"""Waits in one of several ways, and tells what its threads are in: lines `TID NAME LINE FILE`, then `end`."""
import asyncio
import functools
import os
import re
import subprocess
import sys
import threading
import time

LONG = 600
gate = threading.Lock()
gate.acquire()


def lock():
    def inner(a, b=2):
        with gate:
            return a + b

    return inner(1)


def sleeps():
    def a(n):
        if n:
            return a(n - 1)
        time.sleep(
            LONG
        )

    return a(3)


def pipe():
    return subprocess.run(["sleep", str(LONG)], stdout=subprocess.PIPE).stdout


def loop():
    class Server:
        async def serve(self):
            await self.forever()

        async def forever(self):
            await asyncio.sleep(LONG)

    asyncio.run(Server().serve())


def coroutine():
    async def inner():
        time.sleep(LONG)

    async def outer():
        await inner()

    asyncio.run(outer())


def generators():
    def one():
        yield 1
        time.sleep(LONG)
        yield 2

    def two():
        yield from one()

    def three():
        for x in two():
            yield x + 1

    return [x for x in three()]


def callback():
    def key(x):
        if x == 2:
            gate.acquire()
        return x

    return sorted([3, 1, 2], key=functools.partial(key))


def replace():
    return re.sub("b", lambda m: sleeps() or "", "abc")


def deep():
    def down(n):
        return down(n - 1) if n else time.sleep(LONG)

    return down(60)


def too_deep():
    def down(n):
        return down(n - 1) if n else time.sleep(LONG)

    return down(200)


def text():
    code = "\n\ndef grüße(): \n\n    time.sleep(600)\ndef 名前(): grüße()\n名前()\n"
    exec(compile(code, "привет/\U0001f40d.py", "exec"), {"time": time})


class Thing:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        sleeps()

    def __getattr__(self, name):
        with self:
            pass

    @property
    def slow(self):
        return self.missing


def methods():
    class Inner(Thing):
        def __eq__(self, other):
            return self.slow

    return Inner() in [1, 2]


def thread():
    def work():
        gate.acquire()

    t = threading.Thread(target=work)
    t.start()
    t.join()


def handler():
    import signal

    signal.signal(signal.SIGALRM, lambda *_: gate.acquire())
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    time.sleep(LONG)


def far_lines():
    # A line table with steps that do not fit in a byte.
    code = "import time\ndef f():\n x = 1" + "\n" * 700 + " time.sleep(600)" + "\n" * 90 + " return x\nf()\n"
    exec(compile(code, "far.py", "exec"), {})


def forks():
    # The child tells of itself; the number of a thread that forks may stand in its state for long.
    def child():
        frame = sys._getframe()
        lines = [(name(frame.f_code), 0, frame.f_code.co_filename)]
        while frame.f_back:
            frame = frame.f_back
            lines.append((name(frame.f_code), frame.f_lineno, frame.f_code.co_filename))
        first = lines[0]
        for n, line, file in [(first[0], sys._getframe().f_lineno + 3, first[2])] + lines[1:]:
            print(os.getpid(), n, line, file)
        print("end", flush=True)
        time.sleep(LONG)

    if os.fork() == 0:
        child()
    os.wait()


def twice():
    # Not told by itself: a long wait, and short ones after it.
    def first():
        time.sleep(3)

    def second():
        time.sleep(0.05)

    first()
    for _ in range(5):
        second()
    os._exit(0)


def busy():
    # Runs until it had a CPU for a while; told are the ways in which its functions call each other.
    def leaf(n):
        return sum([i * i for i in range(n)])

    def items(n):
        for i in range(n):
            yield leaf(30)

    def key(x):
        return leaf(20)

    def order():
        return sorted(items(50), key=key)

    def plain():
        return [leaf(40) for _ in range(50)]

    while time.thread_time() < 2:
        order()
        plain()
    os._exit(0)


def name(code):
    return getattr(code, "co_qualname", code.co_name)


def look(tids):
    for ident, frame in sys._current_frames().items():
        if ident == threading.get_ident():
            continue
        while frame:
            code = frame.f_code
            yield tids().get(ident, 0), name(code), frame.f_lineno, code.co_filename
            frame = frame.f_back


def tell(tids):
    # Until nothing moves any more.
    before, now, same = None, None, 0
    while same < 3:
        time.sleep(0.1)
        before, now = now, list(look(tids))
        same = same + 1 if before == now else 0
    for line in now:
        print(*line)
    print("end", flush=True)
    time.sleep(LONG)


def tids():
    return {t.ident: t.native_id for t in threading.enumerate()}


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")
    if sys.argv[1] != "forks":
        threading.Thread(target=tell, args=(tids,)).start()
    globals()[sys.argv[1]]()
