"""A model server on uvicorn, for tests: uvicorn_engine.py LOOP HTTP

Prints its port, then a line "left NAME" when it is told that the client of a stream
has left, and ends when its standard input does. GET /NAME?n=N&kind=KIND streams N
tokens (0: without end). KIND is mixed (sizes and pauses of all sorts), large (1,000
bytes each, as fast as it can) or silent (waits for ever after 20 tokens).
"""

import asyncio
import random
import socket
import sys
import threading
import urllib.parse

import uvicorn


def token(name, i, size):
    text = f"data: {name}/{i} "
    return (text + chr(ord("a") + i % 26) * (size - len(text) - 2) + "\n\n").encode()


def size(name, i, kind):
    if kind == "large":
        return 1000
    if (int(name) + i) % 41 == 0:
        return 20000 + (int(name) * 7 + i * 997) % 40000  # some beyond the window
    return 20 + (int(name) * 31 + i * 97) % 400


async def stream(send, name, n, kind):
    i = 0
    while n == 0 or i < n:
        await send({"type": "http.response.body", "body": token(name, i, size(name, i, kind)), "more_body": True})
        i += 1
        if kind == "large":
            # Not 0 only while sending waits: once the client has left it never does.
            await asyncio.sleep(0.001 if i < 50 else 0)
        elif kind == "silent" and i == 20:
            await asyncio.Event().wait()
        elif random.random() < 0.5:
            await asyncio.sleep(random.random() * 0.004)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def gone(receive):
    while (await receive())["type"] != "http.disconnect":
        pass


async def app(scope, receive, send):
    name = scope["path"][1:]
    query = urllib.parse.parse_qs(scope["query_string"].decode())
    n, kind = int(query["n"][0]), query["kind"][0]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    # As engines do: whoever comes to an end first ends the other.
    streaming = asyncio.ensure_future(stream(send, name, n, kind))
    leaving = asyncio.ensure_future(gone(receive))
    await asyncio.wait([streaming, leaving], return_when=asyncio.FIRST_COMPLETED)
    if not streaming.done():
        print("left", name, flush=True)
    for task in (streaming, leaving):
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass


def main():
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    loop, http = sys.argv[1:]
    server = uvicorn.Server(uvicorn.Config(app, loop=loop, http=http, lifespan="off", log_level="error"))

    def end():
        sys.stdin.read()
        server.force_exit = server.should_exit = True

    threading.Thread(target=end, daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    server.run(sockets=[listener])


main()
