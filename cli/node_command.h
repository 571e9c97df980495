// `sublet node --simulate N`: nodes without containers, against the API server of a kubeconfig.
#pragma once

namespace sublet::cli {

int RunNodeCommand(int argc, char** argv);

}  // namespace sublet::cli
