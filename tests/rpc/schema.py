"""The files of the protocol's messages, as they are found in the package of generated code."""

from __future__ import annotations

import importlib
import pkgutil

from google.protobuf.descriptor import FileDescriptor

from common.rpc import pb


def our_files() -> list[FileDescriptor]:
    """Return all files of messages."""
    names = [module.name for module in pkgutil.iter_modules(pb.__path__) if module.name.endswith("_pb2")]
    return [importlib.import_module(f"{pb.__name__}.{name}").DESCRIPTOR for name in names]
