"""Builds the Python module by CMake, which knows how the kernels have to be compiled. See docs/python.md.

Options for CMake come from the environment variable CMAKE_ARGS, such as -DEXATTN_XSIMD_DIR=...
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCE = pathlib.Path(__file__).resolve().parent
BUILD = SOURCE / "build" / "pip"


class CMakeBuild(build_ext):
    def build_extension(self, ext):
        target = pathlib.Path(self.get_ext_fullpath(ext.name)).resolve().parent.parent
        folder = pathlib.Path(self.build_temp).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        options = {"CMAKE_BUILD_TYPE": "Release", "EXATTN_BUILD_PYTHON": "ON", "EXATTN_BUILD_PROGRAM": "OFF",
                   "EXATTN_BUILD_MINT": "OFF", "EXATTN_BUILD_TESTS": "OFF", "EXATTN_INSTALL": "OFF",
                   "Python_EXECUTABLE": sys.executable}
        jobs = str(self.parallel or os.cpu_count() or 1)
        for command in (
                ["cmake", "-S", str(SOURCE), "-B", str(folder), *(f"-D{name}={value}" for name, value in options.items()),
                 *shlex.split(os.environ.get("CMAKE_ARGS", ""))],
                ["cmake", "--build", str(folder), "--config", "Release", "--target", "exattn-python", "--parallel", jobs],
                ["cmake", "--install", str(folder), "--config", "Release", "--component", "python", "--prefix",
                 str(target)]):
            subprocess.run(command, check=True)


version = re.search(r'^#define EXATTN_VERSION "(.*)"$', (SOURCE / "include/exattn/exattn.h").read_text(), re.M)[1]
BUILD.mkdir(parents=True, exist_ok=True)
setup(
    version=version,
    packages=["exattn"],
    package_dir={"": "python"},
    package_data={"exattn": ["py.typed", "*.pyi"]},
    ext_modules=[Extension("exattn._core", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
    # All that is made goes below build/, which is not kept.
    options={"build": {"build_base": str(BUILD)}, "egg_info": {"egg_base": str(BUILD)}},
)
