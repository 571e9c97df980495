// Pump: copies bytes between an upgraded client connection and a tunnel until either side ends.
// Threads: runs on the caller's and one more, which it joins.
#pragma once

#include <memory>

#include "apiserver/response.h"
#include "client/transport.h"

namespace sublet::apiserver {

void Pump(RawConnection& connection, client::Tunnel& tunnel);

// A log stream as the transport pulls it.
std::unique_ptr<ByteStream> MakeLogStream(std::unique_ptr<client::Stream> stream);

}  // namespace sublet::apiserver
