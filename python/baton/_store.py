"""The stores by which the ranks of a group without MPI meet (include/baton/store.h): a folder,
or a store of torch.distributed."""
import os
import pathlib
from typing import Any, Optional

from baton._library import ffi, lib


class _Folder:
    def __init__(self, path: Any) -> None:
        self._path = pathlib.Path(path)
        os.listdir(path)  # raises now if there is no such folder

    def put(self, key: str, value: bytes) -> None:
        new = self._path / f"{key}.{os.getpid()}.new"
        new.write_bytes(value)
        new.replace(self._path / key)

    def get(self, key: str) -> Optional[bytes]:
        try:
            return (self._path / key).read_bytes()
        except FileNotFoundError:
            return None

    def remove(self, key: str) -> None:
        (self._path / key).unlink()


class _OfTorch:
    """A store of torch.distributed. A counter for each value says whether the value exists: a
    `get` would wait for a missing value, and in torch 1 a `wait` that times out makes the
    connection useless. So does a `get` of a value that another rank deletes meanwhile. So values
    are never deleted: to remove one is to reset its counter."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def put(self, key: str, value: bytes) -> None:
        self._store.set(key, value)
        self._store.add(key + ".there", 1)

    def get(self, key: str) -> Optional[bytes]:
        return self._store.get(key) if self._store.add(key + ".there", 0) else None

    def remove(self, key: str) -> None:
        self._store.set(key + ".there", "0")


class Store:
    """A store for C. `pointer` is a `baton_store_t *`, whose functions use `store`, the path of a
    folder or a torch.distributed.Store. `raised` is the first exception in these functions."""

    def __init__(self, store: Any) -> None:
        is_folder = isinstance(store, (str, os.PathLike))
        if not is_folder and not hasattr(store, "delete_key"):
            raise TypeError("a store is the path of a folder or a torch.distributed.Store, and "
                            f"not {type(store).__name__}")
        self._store: Any = (_Folder if is_folder else _OfTorch)(store)
        self.raised: Optional[BaseException] = None
        self._functions = {
            "put": ffi.callback("baton_status_t(void *, const char *, const void *, size_t)",
                                self._put, lib.BATON_ERR_FAILED, self._raise),
            "get": ffi.callback("baton_status_t(void *, const char *, void *, size_t, size_t *)",
                                self._get, lib.BATON_ERR_FAILED, self._raise),
            "remove": ffi.callback("void(void *, const char *)", self._remove)}
        self.pointer = ffi.new("baton_store_t *", self._functions)

    def _raise(self, kind: Any, value: BaseException, trace: Any) -> None:
        self.raised = self.raised or value

    def _put(self, _: Any, key: Any, value: Any, size: int) -> int:
        self._store.put(ffi.string(key).decode(), bytes(ffi.buffer(value, size)))
        return lib.BATON_OK

    def _get(self, _: Any, key: Any, value: Any, capacity: int, size_out: Any) -> int:
        found = self._store.get(ffi.string(key).decode())
        if found is None:
            return lib.BATON_AGAIN
        size_out[0] = len(found)
        ffi.memmove(value, found, min(len(found), capacity))
        return lib.BATON_OK

    def _remove(self, _: Any, key: Any) -> None:
        try:
            self._store.remove(ffi.string(key).decode())
        except (OSError, RuntimeError):
            pass  # an entry that stays in the store does no harm
