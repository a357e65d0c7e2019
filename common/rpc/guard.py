"""What every call to our services passes before and after the servicer's method.

First who is calling, then what is in the bytes, then the method; whatever goes wrong on the way leaves as
a status code with an ErrorDetail. gRPC's own services (health, reflection) pass untouched: they say
nothing about data, and TLS has already asked for a certificate.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import grpc.aio

from common.errors import ColonnadeError, LocalProtocolError, ProtocolError, Refused
from common.rpc.failures import ERROR_METADATA, detail_of, status_of
from common.rpc.identity import Context, caller, require_caller
from common.rpc.pb.job_pb2 import ErrorDetail
from common.rpc.wiretap import Wiretap

log = logging.getLogger("vfl.rpc")

_OUR_METHODS = "/vfl."
_LONGEST_STATUS = 500
"""Characters of the status line; the whole text is in the ErrorDetail."""

if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]
else:  # The stubs know type parameters that the class at run time does not.
    Handler = grpc.RpcMethodHandler


class Guard(grpc.aio.ServerInterceptor):
    """Lets listed parties through to the methods of `vfl.*` services, and turns errors into statuses."""

    def __init__(self, party: str, callers: Collection[str], wiretap: Wiretap) -> None:
        """Create a guard.

        Args:
            party: This party, for the ErrorDetail.
            callers: The parties that may call anything at all.
            wiretap: Parses what comes and serialises what leaves.
        """
        self._party = party
        self._callers = frozenset(callers)
        self._wiretap = wiretap

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Return the method's handler, guarded if it is one of ours."""
        handler = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith(_OUR_METHODS):
            return handler
        if not _is_async(handler):
            return None  # The generated base class's method: UNIMPLEMENTED.
        return self._guarded(handler, handler_call_details.method.rpartition("/")[2])

    def _guarded(self, handler: Handler, name: str) -> Handler:
        """Return a handler that takes and gives bytes; gRPC's own parsing would answer without a type."""
        match handler.request_streaming, handler.response_streaming:
            case False, False:
                one_one = _Method(name, handler.unary_unary, handler.request_deserializer)
                return grpc.unary_unary_rpc_method_handler(self._single(one_one, self._request))
            case True, False:
                many_one = _Method(name, handler.stream_unary, handler.request_deserializer)
                return grpc.stream_unary_rpc_method_handler(self._single(many_one, self._requests))
            case False, True:
                one_many = _Method(name, handler.unary_stream, handler.request_deserializer)
                return grpc.unary_stream_rpc_method_handler(self._stream(one_many, self._request))
            case _:
                many_many = _Method(name, handler.stream_stream, handler.request_deserializer)
                return grpc.stream_stream_rpc_method_handler(self._stream(many_many, self._requests))

    def _single(self, method: _Method, read: _Reader) -> Any:
        async def respond(incoming: Any, context: Context) -> bytes:
            async with self._failures(method, context):
                party = require_caller(context, self._callers)
                response = await method.behavior(read(incoming, method, party), context)
                return self._wiretap.encode(response, party)
            raise LocalProtocolError("a failed call must have been aborted")

        return respond

    def _stream(self, method: _Method, read: _Reader) -> Any:
        async def respond(incoming: Any, context: Context) -> AsyncIterator[bytes]:
            async with self._failures(method, context):
                party = require_caller(context, self._callers)
                async with aclosing(method.behavior(read(incoming, method, party), context)) as responses:
                    async for response in responses:
                        yield self._wiretap.encode(response, party)

        return respond

    def _request(self, wire: bytes, method: _Method, party: str) -> Any:
        return self._wiretap.decode(method.parse, wire, party)

    async def _requests(self, wires: AsyncIterator[bytes], method: _Method, party: str) -> AsyncIterator[Any]:
        async for wire in wires:
            yield self._wiretap.decode(method.parse, wire, party)

    @asynccontextmanager
    async def _failures(self, method: _Method, context: Context) -> AsyncIterator[None]:
        try:
            yield
        except grpc.aio.AbortError:
            raise
        except ColonnadeError as exc:
            level = logging.WARNING if isinstance(exc, Refused | ProtocolError) else logging.INFO
            log.log(level, "%s from %s: %s: %s", method.name, _who(context), type(exc).__name__, exc)
            await self._abort(context, status_of(exc), detail_of(exc, self._party))
        except Exception as exc:
            # The text of an unforeseen error may hold anything, so only its type leaves this party.
            log.exception("%s from %s failed", method.name, _who(context))
            detail = ErrorDetail(
                error=LocalProtocolError.__name__,
                party=self._party,
                what=f"{self._party} met an unforeseen {type(exc).__name__} in {method.name}",
                advice=f"the log of {self._party} has the details",
            )
            await self._abort(context, grpc.StatusCode.INTERNAL, detail)

    async def _abort(self, context: Context, code: grpc.StatusCode, detail: ErrorDetail) -> NoReturn:
        line = f"{detail.error}: {detail.what}"[:_LONGEST_STATUS]
        try:
            wire = self._wiretap.encode(detail, _known(context))
        except ColonnadeError:
            # The ledger takes nothing any more, so the code is all that leaves.
            await context.abort(code)
        await context.abort(code, line, ((ERROR_METADATA, wire),))


@dataclass(frozen=True, slots=True)
class _Method:
    name: str
    behavior: Any
    parse: Any


_Reader = Callable[[Any, _Method, str], Any]


def _who(context: Context) -> str:
    party = _known(context)
    return f"{party} ({context.peer()})" if party else context.peer()


def _known(context: Context) -> str:
    """Return who is calling, empty for somebody without a name."""
    try:
        return caller(context)
    except Refused:
        return ""


def require_async(handler: Handler) -> None:
    """Check that a servicer's method is of the kind that the guard can wrap, or not written yet.

    Raises:
        LocalProtocolError: It is neither a coroutine nor, for streamed responses, an async generator.
    """
    behavior = _behavior(handler)
    if not _is_async(handler) and not behavior.__module__.endswith("_pb2_grpc"):
        raise LocalProtocolError(f"{behavior!r} must be `async def`, and yield its responses if it streams")


def _is_async(handler: Handler) -> bool:
    behavior = _behavior(handler)
    if handler.response_streaming:
        return inspect.isasyncgenfunction(behavior)
    return inspect.iscoroutinefunction(behavior)


def _behavior(handler: Handler) -> Any:
    return handler.unary_unary or handler.stream_unary or handler.unary_stream or handler.stream_stream
