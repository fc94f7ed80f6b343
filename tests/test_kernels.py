"""Kernels: one way to compile them, and compiled code that is never stale and never in the way."""

from __future__ import annotations

import ast
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import prange

import fcac
from fcac import _kernels
from fcac._kernels import inner_kernel, kernel

PACKAGE = Path(fcac.__file__).parent
TREES = {
    path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(PACKAGE.rglob("*.py"))
}
COMPILERS = {"jit", "njit", "vectorize", "guvectorize", "generated_jit", "stencil", "cfunc", "jit_module"}


@inner_kernel(inline="always")
def _squared(value):
    return value * value


@inner_kernel(fastmath=True)
def _tripled(value):
    return value * 3.0


@kernel(parallel=True)
def _sum_of_many(values):
    total = 0.0
    for i in prange(values.shape[0]):
        total += _squared(values[i]) + _tripled(values[i])
    return total


@kernel
def _ratio(a, b):
    return a / b


@kernel(error_model="numpy")
def _ratio_or_infinity(a, b):
    return a / b


# ---------------------------------------------------------------- options


def test_kernels_take_numba_s_options_and_call_each_other():
    assert _sum_of_many(np.array([1.0, 2.0])) == 14.0


def test_division_by_zero_is_an_error_unless_asked_otherwise():
    with pytest.raises(ZeroDivisionError):
        _ratio(1.0, 0.0)
    assert _ratio_or_infinity(1.0, 0.0) == np.inf


# ---------------------------------------------------------------- one way to compile


@pytest.mark.slow
def test_only_the_decorator_module_calls_numba_s_compiler():
    found = []
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "numba":
                found += [(path, alias.name) for alias in node.names if alias.name in COMPILERS]
            elif isinstance(node, ast.Attribute) and node.attr in COMPILERS:
                found.append((path, node.attr))
    assert found == [("_kernels.py", "njit")]


# ---------------------------------------------------------------- stale code


def imports_of(path):
    """Each imported name of a package file and the module it comes from, wherever the import stands."""
    package = ["fcac", *Path(path).parent.parts]
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*start, *([node.module] if node.module else [])])
            for alias in node.names:
                is_module = file_of(f"{module}.{alias.name}") is not None
                yield alias.asname or alias.name, f"{module}.{alias.name}" if is_module else module


def file_of(module):
    """Path of a module of the package, or None."""
    name = "/".join(module.split(".")[1:])
    return next((path for path in (f"{name}.py", f"{name}/__init__.py") if path in TREES), None)


def is_kernel(node):
    found = [name for decorator in getattr(node, "decorator_list", []) for name in ast.walk(decorator)]
    decorators = {name.id for name in found if isinstance(name, ast.Name)}
    return bool(decorators & {"kernel", "inner_kernel", "intrinsic"})


def names_in_kernels(tree):
    """All names on which the machine code of a file's kernels may depend, constants made of constants included."""
    made_of = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            used = {name.id for name in ast.walk(node.value) if isinstance(name, ast.Name)}
            made_of |= {name.id: used for to in node.targets for name in ast.walk(to) if isinstance(name, ast.Name)}
    found, new = set(), set()
    for function in filter(is_kernel, ast.walk(tree)):
        new |= {name.id for line in function.body for name in ast.walk(line) if isinstance(name, ast.Name)}
    while new:
        found |= new
        new = set().union(*(made_of.get(name, set()) for name in new)) - found
    return found


@pytest.mark.slow
def test_the_stamp_covers_every_file_with_kernels():
    tools = {"numba", "llvmlite"}
    expected = [
        path
        for path in TREES
        if any(module.split(".")[0] in tools or module == "fcac._kernels" for _, module in imports_of(path))
    ]
    assert list(_kernels._kernel_sources(str(PACKAGE))) == sorted(expected)
    decorated = {path for path, tree in TREES.items() if any(map(is_kernel, ast.walk(tree)))}
    assert len(decorated) > 5
    assert decorated <= set(expected)


def test_kernels_depend_on_no_file_outside_the_stamp():
    # such as a constant: it becomes part of the machine code, but its file would not count
    covered = set(_kernels._kernel_sources(str(PACKAGE)))
    missing = []
    for path in covered:
        names = dict(imports_of(path))
        # code that writes LLVM code is plain Python: all of it counts
        writes_code = any(module.split(".")[0] == "llvmlite" for module in names.values())
        for name in names if writes_code else names_in_kernels(TREES[path]) & set(names):
            other = file_of(names[name])
            if other is not None and other not in covered:
                missing.append((path, name, other))
    assert missing == []


def test_the_stamp_depends_on_kernels_only(tmp_path):
    def stamp(**files):
        for name, text in files.items():
            (tmp_path / "inner" / f"{name}.py").write_text(text)
        return _kernels._stamp(str(tmp_path))

    (tmp_path / "inner").mkdir()
    assert stamp(plain="x = 1\n") is None
    first = stamp(loops="from fcac._kernels import kernel\n")
    assert stamp(plain="x = 2  # numba\n") == first == stamp()
    assert stamp(loops="from fcac._kernels import inner_kernel\n") != first
    assert stamp(loops="from fcac._kernels import kernel\n") == first
    assert stamp(more="import numba\n") != first


def copied_package(folder):
    shutil.copytree(PACKAGE, folder / "fcac", ignore=shutil.ignore_patterns("__pycache__"))
    return folder / "fcac"


def run(code, folder, **environment):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    done = subprocess.run(
        [sys.executable, "-c", f"import fcac\nassert fcac.__file__.startswith({str(folder)!r})\n{code}"],
        env={**kept, "PYTHONPATH": str(folder), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_a_changed_inner_kernel_reaches_its_callers_in_other_files(tmp_path):
    package = copied_package(tmp_path)
    code = (
        "import numpy as np\n"
        "from fcac.search.exact import nearest\n"
        "from fcac.search.screen import _pick\n"
        "points = np.zeros((2, 30))\n"
        "points[1, 0] = 3.0\n"
        "found = nearest(points, points, 1, np.arange(2))[1]\n"
        "print(found.ravel().tolist(), sum(_pick.stats.cache_hits.values()))\n"
    )
    assert run(code, tmp_path).stdout == "[9.0, 9.0] 0\n"
    assert run(code, tmp_path).stdout == "[9.0, 9.0] 1\n"
    inner = package / "search" / "box_tree.py"
    text = inner.read_text()
    assert text.count("    distances[row, at] = distance\n") == 1
    inner.write_text(text.replace("    distances[row, at] = distance\n", "    distances[row, at] = distance + 100.0\n"))
    assert run(code, tmp_path).stdout == "[109.0, 109.0] 0\n"
    assert run(code, tmp_path).stdout == "[109.0, 109.0] 1\n"


# ---------------------------------------------------------------- no place, or a bad one


@pytest.mark.slow
def test_without_a_place_for_compiled_code_everything_works(tmp_path):
    package = copied_package(tmp_path)
    # permissions would not stop root, but nobody can make a directory where there is a file
    for folder in {path.parent for path in package.rglob("*.py")}:
        (folder / "__pycache__").write_text("not a directory")
    (tmp_path / "file").write_text("not a directory")
    nowhere = {
        name: str(tmp_path / "file" / name)
        for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME", "USERPROFILE", "LOCALAPPDATA", "APPDATA")
    }
    nowhere["NUMBA_OPT"] = "0"  # code that is used once is not worth the compiler's pains
    code = (
        "import numpy as np\n"
        "from fcac import FCAC\n"
        "from fcac.art import learn\n"
        "from fcac.search import box_tree\n"
        "rng = np.random.default_rng(0)\n"
        "rows = np.concatenate([rng.normal(at, 0.3, size=(150, 2)) for at in (0, 5, 10)])\n"
        "model = FCAC(server='communities').fit(rows)\n"
        "assert learn.learn._cache.cache_path is box_tree.partition_in_place._cache.cache_path is None\n"
        "print(len(np.unique(model.predict(rows))))\n"
    )
    done = run(code, tmp_path, **nowhere)
    assert done.stdout == "3\n"
    assert done.stderr.count("set NUMBA_CACHE_DIR") == 1


@pytest.mark.parametrize("damaged", [".nbi", ".nbc"])
def test_damaged_files_are_replaced(tmp_path, damaged):
    path = tmp_path / "doubling.py"
    path.write_text("from fcac._kernels import kernel\n\n@kernel\ndef doubled(value):\n    return 2 * value\n")

    def hits_in_a_new_process():
        # as good as one: a module imported anew has kernels that know of no compiled code
        spec = importlib.util.spec_from_file_location("doubling", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        assert module.doubled(21) == 42
        return sum(module.doubled.stats.cache_hits.values()), Path(module.doubled._cache.cache_path)

    assert hits_in_a_new_process()[0] == 0
    hits, folder = hits_in_a_new_process()
    assert hits == 1
    files = [file for file in folder.iterdir() if file.name.startswith("doubling.") and file.suffix == damaged]
    assert len(files) == 1
    files[0].write_bytes(files[0].read_bytes()[:20])
    assert [hits_in_a_new_process()[0] for _ in range(2)] == [0, 1]


def test_a_full_disk_costs_time_only(monkeypatch, caplog):
    class Full:
        cache_path = "somewhere"

        def load_overload(self, sig, target_context):
            return None

        def save_overload(self, sig, data):
            raise OSError("no space left on device")

    monkeypatch.setattr(_kernels, "_announced", set())
    cache = _kernels._KernelCache(test_a_full_disk_costs_time_only)
    cache._kept = Full()
    assert cache.load_overload(None, None) is None
    cache.save_overload(None, None)
    cache.save_overload(None, None)
    assert cache.cache_path == "somewhere"
    assert [record.levelname for record in caplog.records if "cannot be cached" in record.getMessage()] == ["WARNING"]


def test_sources_that_are_no_files_leave_nothing_behind(monkeypatch, tmp_path):
    # as in a zip archive: without a stamp nothing could tell stale code
    assert _kernels._stamp(str(tmp_path / "archive.zip" / "fcac")) is None
    monkeypatch.setattr(_kernels, "_STAMP", None)
    assert _kernels._KernelCache(copied_package).cache_path is None


def test_the_note_about_compiling_is_written_once(monkeypatch, capsys, caplog):
    monkeypatch.setattr(_kernels, "_announced", set())
    with caplog.at_level(logging.INFO, logger="fcac"):
        _kernels._announce(_kernels._COMPILING, logging.INFO)
        _kernels._announce(_kernels._COMPILING, logging.INFO)
    assert [record.getMessage() for record in caplog.records if "compiling" in record.getMessage()] == [
        "fcac: compiling its kernels; this takes a few seconds and happens only once"
    ]
    monkeypatch.setattr(_kernels, "_announced", set())
    monkeypatch.setattr(logging.getLogger("fcac"), "disabled", True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    _kernels._announce(_kernels._COMPILING, logging.INFO)
    _kernels._announce(_kernels._COMPILING, logging.INFO)
    assert capsys.readouterr().err.count("compiling") == 1
