"""The Spack package. It names no place of the sources, so Spack builds a checkout:

    spack repo add CHECKOUT/packaging/spack
    spack dev-build --source-path CHECKOUT moecomm@0.1.0
"""

from spack.package import *
from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage


class Moecomm(CMakePackage, CudaPackage):
    """Expert-parallel communication for Mixture-of-Experts models."""

    license("Apache-2.0")
    version("0.1.0")

    variant("rdma", default=True, description="RDMA transports")
    variant("static", default=False, description="libmoecomm.a too")
    variant("tools", default=True, description="moerun, moe_info, moe_perf, moe_top and moe_trace")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("python@3.9:", type=("build", "run"))
    depends_on("fmt", type=("build", "link"))
    depends_on("hwloc", type=("build", "link", "run"))
    depends_on("libsodium", type=("build", "link"))
    depends_on("cli11", type="build", when="+tools")
    depends_on("nlohmann-json", type="build", when="+tools")
    depends_on("rdma-core", when="+rdma")

    conflicts("cuda_arch=none", when="+cuda")
    requires("platform=linux")

    def cmake_args(self):
        args = [
            self.define("MOECOMM_TESTS", False),
            self.define("MOECOMM_WERROR", False),
            self.define_from_variant("MOECOMM_CUDA", "cuda"),
            self.define_from_variant("MOECOMM_RDMA", "rdma"),
            self.define_from_variant("MOECOMM_STATIC", "static"),
            self.define_from_variant("MOECOMM_TOOLS", "tools"),
            self.define_from_variant("MOECOMM_PERF", "tools"),
        ]
        if self.spec.satisfies("+cuda"):
            args.append(self.define("CMAKE_CUDA_ARCHITECTURES", self.spec.variants["cuda_arch"].value))
        return args

    def setup_run_environment(self, env):
        env.prepend_path("PYTHONPATH", self.prefix.share.moecomm.python)
