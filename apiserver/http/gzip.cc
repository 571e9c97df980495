#include "apiserver/http/gzip.h"

#include <zlib.h>

#include "base/check.h"

namespace sublet::apiserver {
namespace {
constexpr std::size_t kPieceBytes = 64 * 1024;
}

Body Gzip(const Body& body) {
  z_stream stream{};
  // 15 + 16: the largest window, gzip framing.
  SUBLET_CHECK(deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  Body compressed;
  std::string piece(kPieceBytes, '\0');
  auto reset_output = [&] {
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
  };
  auto run = [&](int flush) {
    for (;;) {
      const int result = deflate(&stream, flush);
      if (stream.avail_out > 0) {
        return result;
      }
      compressed.Append(std::move(piece));
      piece.assign(kPieceBytes, '\0');
      reset_output();
    }
  };
  reset_output();
  for (const Body::Piece& input : body.pieces()) {
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input.bytes.data()));
    stream.avail_in = static_cast<uInt>(input.bytes.size());
    run(Z_NO_FLUSH);
  }
  run(Z_FINISH);
  piece.resize(piece.size() - stream.avail_out);
  compressed.Append(std::move(piece));
  deflateEnd(&stream);
  return compressed;
}

}  // namespace sublet::apiserver
