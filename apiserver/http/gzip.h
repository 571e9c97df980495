// Gzip: compresses a response body at level 1, as Kubernetes does for bodies over 128 KiB.
// Threads: any; blocks about 6 ms per MiB.
#pragma once

#include "apiserver/response.h"

namespace sublet::apiserver {

inline constexpr std::size_t kGzipBytesMin = 128 * 1024;

// The compressed form of `body`, in pieces of at most 64 KiB.
Body Gzip(const Body& body);

}  // namespace sublet::apiserver
