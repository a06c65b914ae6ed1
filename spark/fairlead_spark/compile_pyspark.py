"""`python -m fairlead_spark.compile_pyspark`: makes Spark's Python processes start much sooner.

Spark starts a Python process for each kind of work: to find data sources, to create one, to plan a
read, to run tasks. They import PySpark from `pyspark.zip`, which has only source. Python cannot
store compiled modules in a zip, so each process compiles PySpark again, which takes one CPU second.
This module adds the compiled files to the zip. Run it once after each installation of PySpark, as a
user with write access: in an image, or on a laptop. Another version of Python still uses the
source.
"""

import os
import py_compile
import shutil
import sys
import tempfile
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile


def main() -> int:
    """Compile the zips of the PySpark that this process uses; return the exit code."""
    archives = sorted((_spark_home() / "python" / "lib").glob("*.zip"))
    if not archives:
        print(f"there is no PySpark in {_spark_home()}: correct SPARK_HOME", file=sys.stderr)
        return 1
    for archive in archives:
        try:
            print(f"{archive}: compiled {add_compiled(archive)} modules")
        except OSError as error:
            print(f"{archive} cannot be replaced: {error.strerror}", file=sys.stderr)
            return 1
    return 0


def add_compiled(archive: Path) -> int:
    """Add the compiled form of the modules that have none; return their number.

    Existing entries keep their place in the file, which is replaced atomically: a running Spark
    continues, a starting one reads either the old file or the new one. OSError if that fails.
    """
    with (
        ZipFile(archive) as old,
        tempfile.TemporaryDirectory(dir=archive.parent, prefix=".compiling-") as folder,
    ):
        names = set(old.namelist())
        due = [name for name in sorted(names) if _is_loaded(name) and f"{name}c" not in names]
        if not due:
            return 0
        target = Path(folder) / archive.name
        shutil.copy(archive, target)
        with ZipFile(target, "a", ZIP_DEFLATED) as new:
            for name in due:
                new.writestr(f"{name}c", _compile(old.read(name), archive / name, Path(folder)))
        target.replace(archive)
    return len(due)


def _is_loaded(name: str) -> bool:
    """Tell whether a job may load the module: PySpark's zip also has its tests."""
    return name.endswith(".py") and "/tests/" not in name


def _compile(source: bytes, name: Path, folder: Path) -> bytes:
    """Compile a module; tracebacks name the place in the zip."""
    written, compiled = folder / "module.py", folder / "module.pyc"
    written.write_bytes(source)
    py_compile.compile(
        str(written),
        str(compiled),
        dfile=str(name),
        doraise=True,
        # No check at import: a zip stores times with a precision of two seconds only.
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    return compiled.read_bytes()


def _spark_home() -> Path:
    """Where Spark takes PySpark from, as its own launcher decides."""
    import pyspark

    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


if __name__ == "__main__":
    sys.exit(main())
