"""Processes that leave out an optional package."""

import subprocess
import sys

PROGRAM = """
import sys
from fcac._without import leave_out
leave_out("pandas")
import pyarrow
print(pyarrow.array(["a"], pyarrow.string())[0], "pandas" in sys.modules)
try:
    import pandas
except ModuleNotFoundError as error:
    print(error.name)
leave_out("pyarrow")  # too late: it is there already
import pyarrow
"""


def test_compiled_modules_do_without_too() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["a", "False", "pandas"]
