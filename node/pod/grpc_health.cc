#include "node/pod/grpc_health.h"

#include "node/pod/socket_io.h"

namespace sublet::node {
namespace {

enum FrameType { kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kPing = 6, kGoAway = 7 };
constexpr int kEndStream = 1;
constexpr int kAck = 1;
constexpr int kEndHeaders = 4;
constexpr int kPadded = 8;
constexpr std::size_t kAnswerBytesMax = 1u << 20;

void PutFrame(std::string* out, int type, int flags, std::uint32_t stream,
              std::string_view payload) {
  const auto size = static_cast<std::uint32_t>(payload.size());
  for (const int shift : {16, 8, 0}) {
    *out += static_cast<char>(size >> shift & 255);
  }
  *out += static_cast<char>(type);
  *out += static_cast<char>(flags);
  for (const int shift : {24, 16, 8, 0}) {
    *out += static_cast<char>(stream >> shift & 255);
  }
  out->append(payload);
}

// HPACK: a literal field without indexing and without Huffman coding; texts stay below 127 bytes
// except where the length needs a second byte.
void PutText(std::string* out, std::string_view text) {
  std::size_t size = text.size();
  if (size < 127) {
    *out += static_cast<char>(size);
  } else {
    *out += static_cast<char>(127);
    for (size -= 127; size >= 128; size /= 128) {
      *out += static_cast<char>(size % 128 + 128);
    }
    *out += static_cast<char>(size);
  }
  out->append(text);
}

void PutField(std::string* out, std::string_view name, std::string_view value) {
  *out += '\0';
  PutText(out, name);
  PutText(out, value);
}

}  // namespace

std::string GrpcHealthRequest(const std::string& authority, const std::string& service) {
  std::string out = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  PutFrame(&out, kSettings, 0, 0, {});
  std::string headers;
  PutField(&headers, ":method", "POST");
  PutField(&headers, ":scheme", "http");
  PutField(&headers, ":path", "/grpc.health.v1.Health/Check");
  PutField(&headers, ":authority", authority);
  PutField(&headers, "content-type", "application/grpc");
  PutField(&headers, "te", "trailers");
  PutField(&headers, "user-agent", "kube-probe/1.36");
  PutFrame(&out, kHeaders, kEndHeaders, 1, headers);
  // HealthCheckRequest{string service = 1}; gRPC prefixes one byte of flags and the length.
  std::string request;
  const std::string name = service.substr(0, 16000);
  if (!name.empty()) {
    request += '\x0a';
    for (std::size_t size = name.size();; size >>= 7) {
      if (size < 128) {
        request += static_cast<char>(size);
        break;
      }
      request += static_cast<char>(size % 128 + 128);
    }
    request += name;
  }
  std::string message(1, '\0');
  for (const int shift : {24, 16, 8, 0}) {
    message += static_cast<char>(request.size() >> shift & 255);
  }
  PutFrame(&out, kData, kEndStream, 1, message + request);
  return out;
}

Result<std::optional<bool>> GrpcHealthReader::Feed(std::string_view bytes, std::string* reply) {
  buffer_.append(bytes);
  for (;;) {
    if (buffer_.size() < 9) {
      return std::optional<bool>();
    }
    const auto byte = [&](std::size_t i) {
      return static_cast<std::uint32_t>(static_cast<unsigned char>(buffer_[i]));
    };
    const std::size_t size = byte(0) << 16 | byte(1) << 8 | byte(2);
    if (size > kAnswerBytesMax) {
      return InternalError("the server does not speak gRPC");
    }
    if (buffer_.size() < 9 + size) {
      return std::optional<bool>();
    }
    const std::uint32_t stream = (byte(5) & 127) << 24 | byte(6) << 16 | byte(7) << 8 | byte(8);
    const std::string payload = buffer_.substr(9, size);
    const int type = static_cast<int>(byte(3));
    const int flags = static_cast<int>(byte(4));
    buffer_.erase(0, 9 + size);
    SUBLET_TRY(const auto answer, HandleFrame(type, flags, stream, payload, reply));
    if (answer) {
      return answer;
    }
  }
}

Result<std::optional<bool>> GrpcHealthReader::HandleFrame(int type, int flags, std::uint32_t stream,
                                                          std::string_view payload,
                                                          std::string* reply) {
  if (type == kSettings && (flags & kAck) == 0) {
    PutFrame(reply, kSettings, kAck, 0, {});
  } else if (type == kPing && (flags & kAck) == 0 && payload.size() == 8) {
    PutFrame(reply, kPing, kAck, 0, payload);
  } else if (type == kReset && stream == 1) {
    return InternalError("the gRPC server reset the call");
  } else if (type == kGoAway) {
    return InternalError("the gRPC server closed the connection");
  } else if (type == kHeaders && stream == 1 && (flags & kEndStream) != 0 && message_.size() < 5) {
    return InternalError(
        "this server does not implement the grpc health protocol "
        "(grpc.health.v1.Health)");
  } else if (type == kData && stream == 1) {
    if ((flags & kPadded) != 0) {
      const std::size_t padding = payload.empty() ? 0 : static_cast<unsigned char>(payload[0]);
      if (payload.size() < 1 + padding) {
        return InternalError("malformed HTTP/2 frame");
      }
      payload = payload.substr(1, payload.size() - 1 - padding);
    }
    message_.append(payload.substr(0, 4096));
    if (message_.size() >= 5) {
      const auto size = static_cast<std::size_t>(static_cast<unsigned char>(message_[4])) |
                        static_cast<std::size_t>(static_cast<unsigned char>(message_[3])) << 8;
      if (message_.size() >= 5 + size) {
        // HealthCheckResponse{ServingStatus status = 1}: SERVING is 1, absent means UNKNOWN.
        return std::optional<bool>(size >= 2 && message_[5] == 0x08 && message_[6] == 1);
      }
    }
  }
  return std::optional<bool>();
}

Result<bool> CheckGrpcHealth(const std::string& host, int port, const std::string& service,
                             Deadline deadline) {
  SUBLET_TRY(auto socket, ProbeSocket::Connect(host, port, false, deadline));
  const std::string authority = host + ":" + std::to_string(port);
  SUBLET_RETURN_IF_ERROR(socket->Write(GrpcHealthRequest(authority, service), deadline));
  GrpcHealthReader reader;
  for (;;) {
    char chunk[4096];
    SUBLET_TRY(const std::size_t n, socket->Read(chunk, sizeof(chunk), deadline));
    if (n == 0) {
      return ServiceUnavailable("the gRPC server closed the connection");
    }
    std::string reply;
    SUBLET_TRY(const auto answer, reader.Feed(std::string_view(chunk, n), &reply));
    if (answer) {
      return *answer;
    }
    if (!reply.empty()) {
      SUBLET_RETURN_IF_ERROR(socket->Write(reply, deadline));
    }
  }
}

}  // namespace sublet::node
