"""What the tree must look like, as data: who may include whom, and one door per library.

A path is relative to the repository's root, with forward slashes.
"""
import re

# Rooms of the gateway, from above: its own files; api and http (which may call api); answer; pictures
# and admission; what of fleet is an interface. Fleet's clients are known to the gateway's own files.
GATEWAY = "services/gateway/"
FLEET_INTERFACES = [GATEWAY + "fleet/vision_client.h", GATEWAY + "fleet/decode_client.h"]
# Rooms that gRPC does not come into, also not by way of a header.
WITHOUT_GRPC = re.compile(r"services/gateway/(answer|pictures|admission)/")
GRPC_HEADER = re.compile(r"^(grpc|grpcpp|grpc\+\+)/|\.grpc\.pb\.h$")
# How many .cc and .h files a folder itself may hold.
MAX_FILES = {"services/gateway": 12}

# The pattern that a file's path begins with decides what of ours it may include. "{self}" is what the
# pattern caught; "protos" stands for generated headers.
MAY_INCLUDE = [
    (r"common/base/", ["common/base/"]),
    (r"common/tensor/", ["common/base/", "common/tensor/"]),
    (r"common/(?P<self>weights|text|metrics)/", ["common/base/", "common/tensor/", "common/{self}/"]),
    (r"common/(?P<self>flags)/", ["common/base/", "common/store/", "common/{self}/"]),
    (r"common/(?P<self>ops)/",
     ["common/base/", "common/tensor/", "common/metrics/", "common/{self}/"]),
    (r"common/service/", ["common/"]),
    (r"common/(?P<self>rpc|store)/",
     ["common/base/", "common/tensor/", "common/metrics/", "common/{self}/", "protos"]),
    (r"kernels/", ["common/base/", "common/tensor/", "kernels/"]),
    (r"services/gateway/(?P<self>admission)/", [GATEWAY + "{self}/", "common/", "protos"]),
    (r"services/gateway/(?P<self>fleet)/", [GATEWAY + "{self}/", "common/", "protos"]),
    (r"services/gateway/(?P<self>pictures)/",
     [GATEWAY + "{self}/", *FLEET_INTERFACES, "common/", "protos"]),
    (r"services/gateway/(?P<self>answer)/",
     [GATEWAY + "{self}/", GATEWAY + "pictures/", GATEWAY + "admission/", *FLEET_INTERFACES, "common/",
      "protos"]),
    (r"services/gateway/(?P<self>api|http)/",
     [GATEWAY + "{self}/", GATEWAY + "api/", GATEWAY + "answer/", GATEWAY + "pictures/",
      GATEWAY + "admission/", *FLEET_INTERFACES, "common/", "protos"]),
    (r"services/(?P<self>[^/]+)/", ["services/{self}/", "kernels/", "common/", "protos"]),
    (r"tools/", ["tools/", "services/", "kernels/", "common/", "protos"]),
    (r"tests/", ["tests/", "tools/", "services/", "kernels/", "common/", "protos"]),
]

# Headers that protoc generates from protos/.
GENERATED = re.compile(r"^(tessera/v\d+|google/rpc|opentelemetry/[\w/]+)/\w+(\.grpc)?\.pb\.h$")

# Library, pattern of its headers, pattern of the files that may include them. Beside that, a test
# may include what the folder that it mirrors may.
GRPC_FILES = (r"common/rpc/|tools/|services/[^/]+/main\.cc$|services/gateway/(api|fleet)/"
              r"|services/[^/]+/\w*(_service|_client|_runtime|_call|_reactor|_request)\.(h|cc)$"
              r"|tests/(services|integration|bench|support|tools)/")
DOORS = [
    ("Abseil", r"absl/", r""),
    ("protobuf", r"google/protobuf/", GRPC_FILES + r"|common/store/|tests/fuzz/"),
    ("gRPC", r"(grpc|grpcpp|grpc\+\+)/", GRPC_FILES),
    ("hiredis", r"hiredis/", r"common/store/redis/"),
    ("libjpeg-turbo", r"(jpeglib|jerror|jconfig|jmorecfg|turbojpeg)\.h$", r"services/vision/image/"),
    ("libpng", r"png\.h$", r"services/vision/image/"),
    ("libwebp", r"webp/", r"services/vision/image/"),
    ("OpenCV", r"opencv2/", r"services/vision/image/|tests/services/vision/|tools/"),
    ("prometheus-cpp", r"prometheus/", r"common/metrics/"),
    ("Boost", r"boost/", r"services/gateway/http/|common/ops/"),
    ("Highway", r"hwy/", r"kernels/cpu/|tests/kernels/"),
    ("x86 intrinsics", r"(imm|xmm|emm|cpuid|x86gprintrin)\w*\.h$", r"kernels/cpu/"),
    ("PCRE2", r"pcre2(posix)?\.h$", r"common/text/"),
    ("utf8proc", r"utf8proc\.h$", r"common/text/"),
    ("ICU", r"unicode/", r"common/text/"),
    ("nlohmann-json", r"nlohmann/", r"common/base/json\.h$"),
    ("OpenSSL", r"openssl/", r"common/(base|store)/"),
    ("xxHash", r"(xxhash|xxh3)\.h$", r"common/(base|store)/"),
    ("CLI11", r"CLI/", r"common/flags/|tools/|services/[^/]+/main\.cc$"),
    ("CUDA", r"(cuda\w*|cublas\w*|device_\w+)\.h$|(cooperative_groups|cub|thrust)/", r"kernels/cuda/"),
    ("GoogleTest", r"(gtest|gmock)/", r"tests/"),
    ("sanitizers", r"sanitizer/", r"tests/support/"),
    ("Google Benchmark", r"benchmark/", r"tests/"),
    ("the system", r"(sys|arpa|netinet|linux|asm)/"
     r"|(unistd|fcntl|sched|signal|pthread|time|malloc|dlfcn|errno|netdb|poll|pwd|spawn|termios"
     r"|getopt|glob|cxxabi|execinfo|stdio|stdlib|string|stdint|stddef|limits|math)\.h$", r""),
    ("the standard library", r"[a-z_0-9]+$", r""),
]

# Folders that must say what they are (a pattern of the whole path).
NEED_README = re.compile(
    r"^(common/[^/]+(/[^/]+)?|kernels(/[^/]+)?|services/[^/]+(/[^/]+)?|tools|tests|deploy)$")
MAX_README_LINES = 60

CODE = re.compile(r"\.(h|cc|cu|cuh|py|sh|proto|cmake)$|(^|/)CMakeLists\.txt$|^dev$|^\.ci/run$")
CPP = re.compile(r"\.(h|cc|cu|cuh|inc)$")
# Data: not ours to style.
DATA = re.compile(r"^(tests/goldens|models)/")
LONG_LINES = 400
MAX_LINES = 600

# Pattern, files it is looked for in, files it is allowed in, what to say. The pieces keep this file
# from finding itself.
ANYTHING = re.compile(r"")
FORBIDDEN = [
    (re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b"), CODE, None,
     "an open task does not land: do it, or say it in an issue"),
    (re.compile(r"(?i)\bnot (yet )?impl" + r"emented\b"), CODE, None,
     "no stubs: leave the place, not an empty body"),
    (re.compile(r"std::reg" + r"ex|#\s*include\s*<reg" + r"ex>"), CPP, None,
     "std::reg" + "ex recurses once a character: use common/text's PCRE2 or a small scanner"),
    (re.compile(r"\b(secure_)?get" + r"env\b"), CPP,
     re.compile(r"(^|/)main\.cc$|^(tools|tests)/"), "flags and environment are read in main.cc only"),
    (re.compile(r"std::filesystem::(?!path\b|directory_iterator\b)\w+\((?!.*\b(error|ignored)\b)[^;]*\)|"
                r":\s*std::filesystem::(recursive_)?directory_iterator\b"), CPP, re.compile(r"^tests/"),
     "it may throw: give it a std::error_code, list a directory by base::ListDirectory"),
    (re.compile(r"(?<![\w.])/(home|root|Users|work)/\w"), ANYTHING, None,
     "a path of one machine: use a relative one"),
]
