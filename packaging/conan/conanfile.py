import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd, stdcpp_library
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rmdir

required_conan_version = ">=2.0"


class ExattnConan(ConanFile):
    name = "exattn"
    description = "Fused attention with the same bits everywhere"
    license = "MIT"
    topics = ("attention", "transformer", "reproducibility", "simd")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False]}
    default_options = {"shared": False}

    @property
    def _checkout(self):
        return os.path.join(self.recipe_folder, os.pardir, os.pardir)

    def set_version(self):
        header = load(self, os.path.join(self._checkout, "include", "exattn", "exattn.h"))
        self.version = re.search(r'#define EXATTN_VERSION "(.*)"', header).group(1)

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "src/*", "exact/*"):
            copy(self, pattern, self._checkout, self.export_sources_folder)

    def requirements(self):
        # Every user of a static exattn links pthreadpool, and finds it by the FindPthreadpool.cmake of this project.
        self.requires("pthreadpool/cci.20231129")
        self.requires("xsimd/[>=8.1]", visible=False)  # headers, for building alone

    def validate(self):
        if self.settings.os not in ("Linux", "Macos"):
            raise ConanInvalidConfiguration("exattn is built on Linux and macOS only")
        if self.settings.get_safe("compiler.cppstd"):
            check_min_cppstd(self, 17)  # of the interface; the library itself asks for C++20

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["EXATTN_BUILD_PROGRAM"] = False
        toolchain.cache_variables["EXATTN_BUILD_MINT"] = False
        toolchain.cache_variables["EXATTN_BUILD_TESTS"] = False
        toolchain.cache_variables["EXATTN_BUILD_PYTHON"] = "OFF"
        toolchain.cache_variables["EXATTN_INSTALL"] = True
        toolchain.generate()
        dependencies = CMakeDeps(self)
        # Not a generated config file: it would come before FindPthreadpool.cmake, with another target.
        dependencies.set_property("pthreadpool", "cmake_find_mode", "none")
        dependencies.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        CMake(self).install()
        # Conan writes these for its users, with the places of the dependencies.
        rmdir(self, os.path.join(self.package_folder, "lib", "cmake"))
        rmdir(self, os.path.join(self.package_folder, "lib", "pkgconfig"))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "exattn")
        self.cpp_info.set_property("cmake_target_name", "exattn::exattn")
        self.cpp_info.set_property("pkg_config_name", "exattn")
        self.cpp_info.libs = ["exattn"]
        if not self.options.shared:
            self.cpp_info.defines = ["EXATTN_STATIC"]
            runtime = stdcpp_library(self)  # for programs in C
            if runtime:
                self.cpp_info.system_libs.append(runtime)
