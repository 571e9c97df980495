// Bytes from outside the node agent: the first byte picks the parser. Clients of the kubelet API
// send HTTP, WebSocket and SPDY; containers write logs and answer probes; the engine streams
// frames; other programs leave CDI specifications.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "node/engine/docker_json.h"
#include "node/engine/stream_frames.h"
#include "node/engine/unix_http.h"
#include "node/kubelet_api/http_request.h"
#include "node/kubelet_api/remote_command.h"
#include "node/kubelet_api/spdy.h"
#include "node/kubelet_api/websocket.h"
#include "node/pod/cdi.h"
#include "node/pod/env.h"
#include "node/pod/grpc_health.h"
#include "node/pod/logs.h"

namespace sublet::node {
namespace {

void Split(std::string_view bytes, std::string_view* first, std::string_view* second) {
  const std::size_t half = bytes.size() / 2;
  *first = bytes.substr(0, half);
  *second = bytes.substr(half);
}

template <typename Reader>
void Drain(Reader& reader) {
  for (;;) {
    auto next = reader.Next();
    if (!next.ok() || !*next) {
      return;
    }
  }
}

void Run(std::uint8_t which, std::string_view bytes) {
  std::string_view first;
  std::string_view second;
  Split(bytes, &first, &second);
  std::string out;
  switch (which % 11) {
    case 0:
      if (auto request = ParseRequestHead(bytes); request.ok()) {
        static_cast<void>(request->PathParts());
        static_cast<void>(IsWebSocketUpgrade(*request));
      }
      break;
    case 1: {
      WebSocketReader reader(4096);
      reader.Feed(first);
      Drain(reader);
      reader.Feed(second);
      Drain(reader);
      break;
    }
    case 2: {
      SpdyReader reader;
      reader.Feed(first);
      Drain(reader);
      reader.Feed(second);
      Drain(reader);
      break;
    }
    case 3: {
      StreamFrames frames;
      frames.Feed(first);
      Drain(frames);
      frames.Feed(second);
      Drain(frames);
      break;
    }
    case 4: {
      ChunkDecoder decoder;
      if (decoder.Feed(first, &out).ok()) {
        static_cast<void>(decoder.Feed(second, &out).ok());
      }
      break;
    }
    case 5:
      static_cast<void>(ParseResponseHead(bytes).ok());
      static_cast<void>(ParseEngineInfo(bytes));
      static_cast<void>(ParseEngineTime(bytes));
      break;
    case 6: static_cast<void>(ParseLogLine(bytes).has_value()); break;
    case 7: {
      GrpcHealthReader reader;
      static_cast<void>(reader.Feed(first, &out).ok());
      static_cast<void>(reader.Feed(second, &out).ok());
      break;
    }
    case 8: static_cast<void>(ParseCdiSpec(bytes, false).ok()); break;
    case 9: {
      ResizeParser parser;
      parser.Feed(bytes, [](int, int) {});
      break;
    }
    default:
      static_cast<void>(ExpandVariables(first, {{"A", "1"}}));
      static_cast<void>(DecodeBase64(second));
      break;
  }
}

}  // namespace
}  // namespace sublet::node

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 0) {
    sublet::node::Run(data[0], std::string_view(reinterpret_cast<const char*>(data + 1), size - 1));
  }
  return 0;
}
