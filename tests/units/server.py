"""A server of asyncio that answers lines: `q 0` at once, `c MS` after computing so long, `b MS` after blocking its loop."""
import asyncio
import time


def compute(seconds):
    end, n = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        n += sum(range(200))
    return n


def block(seconds):
    time.sleep(seconds)


async def serve(reader, writer):
    while line := await reader.readline():
        what, ms = line.split()
        if what == b"c":
            compute(int(ms) / 1000)
        elif what == b"b":
            block(int(ms) / 1000)
        writer.write(b".\n")
        await writer.drain()
    writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
