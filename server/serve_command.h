// `sublet serve`: runs one control plane until SIGTERM or SIGINT.
#pragma once

namespace sublet::server {

// Exit codes: 0 stopped cleanly, 1 could not start (or storage failed), 2 wrong flags or values.
int RunServe(int argc, char** argv);

}  // namespace sublet::server
