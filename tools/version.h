#pragma once

namespace tessera::tools {

// Of this build, for `--version` and tessera_build_info.
inline constexpr char kVersion[] = "0.1.0";

}  // namespace tessera::tools
