// The dictionary with which SPDY/3 header blocks are compressed. Fixed by the protocol: zlib checks
// its Adler-32 (0xe3c6a7c2).
#pragma once

#include <string>

namespace sublet::node {

const std::string& SpdyDictionary();

}  // namespace sublet::node
