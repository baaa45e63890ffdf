#!/usr/bin/env python3
"""Plants violations in a small tree and sees that lint.py finds each, and nothing in a clean one."""
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lint  # noqa: E402

CLEAN = {
    "common/base/README.md": "base\n",
    "common/base/a.h": "#pragma once\n\n#include <vector>\n",
    "common/base/json.h": "#pragma once\n#include <nlohmann/json.hpp>\n",
    "common/store/README.md": "store\n",
    "common/store/b.cc": '#include <sys/stat.h>\n#include <xxhash.h>\n#include "absl/status/status.h"\n'
                         '#include "common/base/a.h"\n#include "tessera/v1/record.pb.h"\n',
    "common/store/f.cc": "bool b = std::filesystem::exists(dir / kName, error);\nstd::filesystem::path p(x);\n"
                         "std::filesystem::directory_iterator at(directory, error);\n",
    "kernels/README.md": "kernels\n",
    "kernels/cpu/README.md": "cpu\n",
    "kernels/cpu/x-inl.h": '#include "hwy/highway.h"\n#include <immintrin.h>\n',
    "services/vision/README.md": "vision\n",
    "services/vision/main.cc": '#include <CLI/CLI.hpp>\nconst char* x = std::getenv("X");\n',
    "services/vision/vision_service.h":
        '#pragma once\n#include <grpcpp/grpcpp.h>\n#include "services/vision/c.h"\n',
    "services/vision/c.h": '#pragma once\n#include "kernels/backend.h"\n#include "common/store/d.h"\n',
    "tests/README.md": "tests\n",
    "tests/common/store/b_test.cc": '#include <gtest/gtest.h>\n#include <xxhash.h>\n'
                                    '#include "tests/support/fake.h"\n',
    "tests/goldens/data.json": "TO" "DO /ho" "me/someone\n",
    "docs.md": "prose may be of any length\n" * 700,
    "picture.bin": "\xff\xfe",
}

# name: (path, text, a piece of what must be said)
PLANTED = {
    "service includes another": ("services/vision/v.cc", '#include "services/decode/d.h"\n', "may not"),
    "base includes store": ("common/base/v.h", '#pragma once\n#include "common/store/b.h"\n', "may not"),
    "base includes tensor": ("common/base/v.cc", '#include "common/tensor/tensor.h"\n', "may not"),
    "text includes metrics": ("common/text/v.cc", '#include "common/metrics/m.h"\n', "may not"),
    "text includes protos": ("common/text/v.cc", '#include "tessera/v1/types.pb.h"\n', "may not"),
    "kernels include weights": ("kernels/v.cc", '#include "common/weights/w.h"\n', "may not"),
    "product includes tests": ("services/vision/v.cc", '#include "tests/support/f.h"\n', "may not"),
    "common includes tools": ("common/rpc/v.cc", '#include "tools/t.h"\n', "may not"),
    "own header in brackets": ("kernels/v.cc", "#include <kernels/backend.h>\n", 'with ""'),
    "own header by its name": ("services/vision/v.cc", '#include "c.h"\n', "path from the root"),
    "hiredis beside its door": ("common/store/memory.cc", "#include <hiredis/hiredis.h>\n", "hiredis"),
    "prometheus beside its door": ("services/vision/v.cc", "#include <prometheus/counter.h>\n", "door"),
    "jpeg beside its door": ("services/vision/v.cc", "#include <jpeglib.h>\n", "libjpeg"),
    "gRPC in the engine": ("services/decode/engine/v.cc", "#include <grpcpp/grpcpp.h>\n", "gRPC"),
    "nlohmann outside base": ("services/vision/v.cc", "#include <nlohmann/json.hpp>\n", "nlohmann"),
    "gtest in the product": ("kernels/v.cc", "#include <gtest/gtest.h>\n", "GoogleTest"),
    "a test at another's door": ("tests/common/text/v.cc", "#include <jpeglib.h>\n", "libjpeg"),
    "unknown library": ("tools/v.cc", "#include <folly/Try.h>\n", "no known library"),
    "no pragma once": ("tools/v.h", "int x;\n", "#pragma once"),
    "601 lines": ("tools/v.cc", "int x;\n" * 601,
                  "601 lines; 600 are the limit: split by responsibility"),
    "open task": ("tools/v.cc", "// TO" "DO: later\n", "open task"),
    "open task in CMake": ("tools/CMakeLists.txt", "# FIX" "ME\n", "open task"),
    "a look that throws": ("tools/v.cc", "if (std::filesystem::exists(path)) return;\n", "may throw"),
    "a loop that throws": ("tools/v.cc", "for (const auto& e : std::filesystem::directory_iterator(d, error)) {\n",
                           "may throw"),
    "stub": ("tools/v.cc", 'return Error("Not impl' 'emented");\n', "stub"),
    "regex": ("tools/v.cc", "std::reg" "ex r;\n", "recurses"),
    "regex header": ("common/text/v.cc", "#include <reg" "ex>\n", "recurses"),
    "environment below main": ("services/vision/v.cc", 'get' 'env("HOME");\n', "main.cc only"),
    "a home": ("tools/v.cc", '"/ho' 'me/someone/model"\n', "path of one machine"),
    "a home in prose": ("notes.md", "see /ro" "ot/notes\n", "path of one machine"),
    "admission includes the answer":
        ("services/gateway/admission/v.cc", '#include "services/gateway/answer/a.h"\n', "may not"),
    "pictures include a client that is no interface":
        ("services/gateway/pictures/v.cc", '#include "services/gateway/fleet/router.h"\n', "may not"),
    "an answer includes its caller":
        ("services/gateway/answer/v.cc", '#include "services/gateway/api/a.h"\n', "may not"),
    "the API includes HTTP":
        ("services/gateway/api/v.cc", '#include "services/gateway/http/h.h"\n', "may not"),
    "the fleet includes the answer":
        ("services/gateway/fleet/v.cc", '#include "services/gateway/answer/a.h"\n', "may not"),
    "an answer includes a stub of gRPC":
        ("services/gateway/answer/v.cc", '#include "tessera/v1/vision.grpc.pb.h"\n', "gRPC does not come"),
    "hiredis in the tiers": ("common/store/redis_store.cc", "#include <hiredis/hiredis.h>\n", "hiredis"),
    "long README": ("tools/README.md", "line\n" * 61, "61 lines"),
}


def write(root, files):
    for path, text in files.items():
        full = os.path.join(root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="latin-1") as file:
            file.write(text)


def violations_of(extra, without=()):
    with tempfile.TemporaryDirectory() as root:
        files = {path: text for path, text in {**CLEAN, **extra}.items() if path not in without}
        write(root, files)
        return lint.check(root)[1]


class LintTest(unittest.TestCase):
    def test_a_clean_tree_passes(self):
        self.assertEqual(violations_of({}), [])

    def test_each_planted_violation_is_found_alone(self):
        for name, (path, text, say) in PLANTED.items():
            with self.subTest(name):
                readmes = {f"{path.rsplit('/', end)[0]}/README.md": "x\n"
                           for end in range(1, path.count("/") + 1)}
                readmes.pop(path, None)
                found = violations_of({**readmes, path: text})
                self.assertEqual([found_path for found_path, _, _ in found], [path], found)
                self.assertIn(say, found[0][2])

    def test_each_kind_of_folder_needs_a_readme(self):
        for path in ("common/base/README.md", "kernels/README.md", "kernels/cpu/README.md",
                     "services/vision/README.md", "tests/README.md"):
            found = violations_of({}, without=(path,))
            self.assertEqual([found_path for found_path, _, _ in found], [path], found)
        for path in ("tools/x.cc", "deploy/packages.txt", "services/vision/image/x.cc",
                     "common/store/redis/x.cc", "common/rpc/tls/x.cc", "common/rpc/trace/x.cc"):
            folder = path.rsplit("/", 1)[0]
            above = {f"{folder.rsplit('/', 1)[0]}/README.md": "x\n"} if folder.startswith("common/") else {}
            self.assertEqual(violations_of({**above, path: "x\n"}),
                             [(f"{folder}/README.md", 1, "the folder has no README.md")])

    def assert_said(self, files, expected):
        """`files` beside the clean tree give the violations [(path, a piece of what is said)]."""
        folders = {path.rsplit("/", 1)[0] for path in files}
        readmes = {f"{folder}/README.md": "x\n" for folder in folders}
        found = violations_of({**readmes, **files})
        self.assertEqual([path for path, _, _ in found], [path for path, _ in expected], found)
        for (_, _, said), (_, say) in zip(found, expected):
            self.assertIn(say, said)

    def test_units_do_not_include_each_other(self):
        self.assert_said(
            {"common/text/a.h": "#pragma once\n",
             "common/text/a.cc": '#include "common/text/a.h"\n#include "common/text/b.h"\n',
             "common/text/b.h": '#pragma once\n#include "common/text/c.h"\n',
             "common/text/c.h": '#pragma once\n#include "common/text/a.h"\n'},
            [("common/text/a.cc", "common/text/a, common/text/b, common/text/c")])

    def test_a_unit_may_include_itself_and_two_may_share_one(self):
        self.assert_said(
            {"common/text/a.h": '#pragma once\n#include "common/text/c.h"\n',
             "common/text/a.cc": '#include "common/text/a.h"\n#include "common/text/b.h"\n',
             "common/text/b.h": '#pragma once\n#include "common/text/c.h"\n',
             "common/text/c.h": "#pragma once\n"}, [])

    def test_folders_do_not_include_each_other(self):
        self.assert_said(
            {"kernels/top.h": '#pragma once\n#include "kernels/cpu/a.h"\n',
             "kernels/cpu/a.h": "#pragma once\n",
             "kernels/cpu/b.h": '#pragma once\n#include "kernels/base.h"\n',
             "kernels/base.h": "#pragma once\n"},
            [("kernels/cpu/b.h", "folders include each other: kernels, kernels/cpu")])

    def test_in_services_nothing_is_included_from_above(self):
        files = {"services/vision/tower/t.h": '#pragma once\n#include "services/vision/top.h"\n',
                 "services/vision/top.h": "#pragma once\n"}
        self.assert_said(files, [("services/vision/tower/t.h", "stands above")])
        self.assert_said({"kernels/cpu/t.h": '#pragma once\n#include "kernels/top.h"\n',
                          "kernels/top.h": "#pragma once\n"}, [])

    def test_grpc_does_not_come_into_a_room_by_way_of_a_header(self):
        self.assert_said(
            {"services/gateway/answer/v.cc": '#include "services/gateway/answer/v.h"\n',
             "services/gateway/answer/v.h": '#pragma once\n#include "common/rpc/outer.h"\n',
             "common/rpc/outer.h": '#pragma once\n#include "common/rpc/inner.h"\n',
             "common/rpc/inner.h": "#pragma once\n#include <grpcpp/grpcpp.h>\n",
             "services/gateway/api/w.cc": '#include "common/rpc/outer.h"\n',
             "services/gateway/README.md": "x\n"},
            [("services/gateway/answer/v.cc", "answer/v.h -> common/rpc/outer.h -> common/rpc/inner.h"),
             ("services/gateway/answer/v.h", "common/rpc/outer.h -> common/rpc/inner.h -> grpcpp")])

    def test_the_gateway_itself_holds_twelve_files(self):
        files = {f"services/gateway/f{i}.{kind}": "#pragma once\n" for i in range(6) for kind in ("h", "cc")}
        self.assert_said(files, [])
        self.assert_said({**files, "services/gateway/main.cc": "int x;\n"},
                         [("services/gateway", "13 .cc and .h files")])

    def test_long_files_are_listed_and_600_lines_pass(self):
        with tempfile.TemporaryDirectory() as root:
            write(root, {**CLEAN, "tools/README.md": "x\n", "tools/v.cc": "int x;\n" * 600})
            _, violations, long_files = lint.check(root)
            self.assertEqual(violations, [])
            self.assertEqual(long_files, [("tools/v.cc", 600)])

    def test_a_checkout_is_scanned_without_what_git_ignores(self):
        with tempfile.TemporaryDirectory() as root:
            write(root, {**CLEAN, ".gitignore": "out/\n", "out/v.h": "no pragma\n"})
            subprocess.run(["git", "-C", root, "init", "-q"], check=True)
            self.assertNotIn("out/v.h", lint.list_files(root))
            self.assertIn("common/base/a.h", lint.list_files(root))

    def test_an_empty_tree_fails(self):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lint.py")
        with tempfile.TemporaryDirectory() as root:
            self.assertEqual(subprocess.run([sys.executable, script, root],
                                            capture_output=True).returncode, 1)


if __name__ == "__main__":
    unittest.main()
