// `sublet version`.
#pragma once

namespace sublet::cli {
int RunVersion(int argc, char** argv);
}  // namespace sublet::cli
