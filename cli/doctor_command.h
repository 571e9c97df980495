// `sublet doctor`: looks at everything a tenant needs on this machine and this host, and says what
// to do about what is missing.
#pragma once

namespace sublet::cli {
int RunDoctor(int argc, char** argv);
}  // namespace sublet::cli
