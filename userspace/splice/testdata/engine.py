"""A model server on asyncio (level-triggered epoll), for tests.

Prints its port, answers GET /?n=N&size=S with N chunks of S bytes, each written as
uvicorn writes it, and ends when its standard input does.
"""

import asyncio
import sys
import urllib.parse


async def answer(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            query = urllib.parse.parse_qs(urllib.parse.urlsplit(head.split()[1].decode()).query)
            n, size = int(query["n"][0]), int(query["size"][0])
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            for i in range(n):
                data = b"%-*d\n" % (size - 1, i)
                writer.write(b"".join([b"%x\r\n" % len(data), data, b"\r\n"]))
                await writer.drain()
                if i < 50:
                    await asyncio.sleep(0.001)
            writer.write(b"0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
        pass
    finally:
        writer.close()


async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


asyncio.run(main())
