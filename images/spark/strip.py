"""Remove from Spark what no job of ours loads: about half of its size.

Hive's metastore and its database, machine learning, graphs, Spark Connect's server, the Scala
compiler of the shell, ZooKeeper's clients, and native libraries of other systems inside jars.
Jars that look idle and are not stay: hive-storage-api (ORC), ivy and datasketches (every session),
pyarrow's substrait library (its core links it).
"""

import shutil
import sys
import zipfile
from pathlib import Path

JARS = (
    "hive-beeline",
    "hive-cli",
    "hive-common",
    "hive-exec",
    "hive-jdbc",
    "hive-metastore",
    "hive-serde",
    "hive-service-rpc",
    "hive-shims",
    "derby",
    "datanucleus",
    "spark-hive",
    "spark-mllib",
    "spark-graphx",
    "spark-ganglia",
    "breeze",
    "spire",
    "algebra_",
    "spark-connect_",
    "scala-compiler",
    "curator",
    "zookeeper",
    "arpack",
    "lapack",
    "blas",
    "JTransforms",
    "netty-transport-native-kqueue",
    "netty-transport-native-epoll-4-windows",
)
FOLDERS = ("ml", "mllib", "tests", "examples", "pandas/tests", "data", "licenses")
NATIVE_JARS = ("rocksdbjni", "zstd-jni")
ARROW_LIBRARIES = ("libarrow_flight", "libarrow_python_flight", "_flight", "_s3fs")
FOREIGN = ("osx", "darwin", "win", "freebsd", "aix", "ppc64", "s390x", "riscv", "loongarch", "musl")


def main(root: str) -> None:
    """Run `strip.py VENV`."""
    (packages,) = Path(root).glob("lib/python*/site-packages")
    spark = packages / "pyspark"
    for jar in (spark / "jars").glob("*.jar"):
        if jar.name.startswith(JARS):
            jar.unlink()
        elif jar.name.startswith(NATIVE_JARS):
            drop_foreign_libraries(jar)
    for name in FOLDERS:
        shutil.rmtree(spark / name, ignore_errors=True)
    for folder in list(packages.rglob("tests")):
        shutil.rmtree(folder, ignore_errors=True)
    for file in (packages / "pyarrow").glob("*"):
        if file.name.startswith(ARROW_LIBRARIES):
            file.unlink()


def drop_foreign_libraries(jar: Path) -> None:
    """Rewrite a jar without the native libraries of systems that no container has."""
    slim = jar.with_suffix(".slim")
    with zipfile.ZipFile(jar) as old, zipfile.ZipFile(slim, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            is_library = entry.filename.endswith((".so", ".dll", ".jnilib", ".dylib"))
            if not (is_library and any(word in entry.filename for word in FOREIGN)):
                new.writestr(entry, old.read(entry))
    slim.replace(jar)


if __name__ == "__main__":
    main(*sys.argv[1:])
