#pragma once

namespace tessera::base {

// Of this build: for `--version`, tessera_build_info and /version.
inline constexpr char kVersion[] = "0.1.0";

}  // namespace tessera::base
