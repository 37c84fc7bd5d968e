"""What a server process takes in: so many requests at once, and their bodies whole, bounded and in time."""

import asyncio

from starlette.types import Message, Receive

from app.domain.errors import Overloaded, PayloadTooLarge, TooSlow


class Intake:
    """Counts what all open requests of this process take together.

    Bodies are counted as they arrive, and until their request is answered, for what is made of a body lives as long.
    """

    def __init__(self, *, body_bytes: int, open_requests: int, open_bytes: int, seconds: float) -> None:
        self.body_bytes = body_bytes
        self.seconds = seconds
        self._most_requests = open_requests
        self._most_bytes = open_bytes
        self._requests = 0
        self._bytes = 0

    def enter(self) -> None:
        """Count a request in, which has to leave again.

        Raises:
            Overloaded: there are as many as may be.
        """
        if self._requests >= self._most_requests:
            raise Overloaded
        self._requests += 1

    def leave(self, body_bytes: int) -> None:
        """Count a request out, with its body."""
        self._requests -= 1
        self._bytes -= body_bytes

    def hold(self, count: int) -> None:
        """Count a part of a body in.

        Raises:
            Overloaded: the bodies of all open requests are together larger than they may be.
        """
        self._bytes += count
        if self._bytes > self._most_bytes:
            raise Overloaded("The server has larger bodies in memory than it takes at once; try again shortly.")


class Body:
    """The body of one request, which is read when somebody asks for it, and then as a whole.

    In one piece it takes its own size, however small the parts are that it comes in.
    """

    def __init__(self, intake: Intake, receive: Receive) -> None:
        self.size = 0
        self._intake = intake
        self._receive = receive
        self._is_whole = False

    async def receive(self) -> Message:
        """Return the whole body, and after it what the server says of the connection.

        Raises:
            PayloadTooLarge, TooSlow, Overloaded.
        """
        if self._is_whole:
            return await self._receive()
        # One deadline for all of it. A body that is here already waits for nothing.
        try:
            async with asyncio.timeout(self._intake.seconds):
                message = await self._part()
                if message.get("more_body"):
                    message = await self._rest(message)
        except TimeoutError as error:
            raise TooSlow(f"the body did not arrive within {self._intake.seconds:g} seconds") from error
        self._is_whole = True
        return message

    async def _part(self) -> Message:
        message = await self._receive()
        count = len(message.get("body", b""))
        if self.size + count > self._intake.body_bytes:
            raise PayloadTooLarge(limit_bytes=self._intake.body_bytes)
        self.size += count
        self._intake.hold(count)
        return message

    async def _rest(self, first: Message) -> Message:
        gathered = bytearray(first["body"])
        while True:
            message = await self._part()
            if message["type"] != "http.request":
                return message
            gathered += message.get("body", b"")
            if not message.get("more_body"):
                return {"type": "http.request", "body": bytes(gathered), "more_body": False}
