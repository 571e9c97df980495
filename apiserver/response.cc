#include "apiserver/response.h"

namespace sublet::apiserver {

Body::Body(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {
  for (const Piece& piece : pieces_) {
    size_ += piece.bytes.size();
  }
}

void Body::Append(std::string text) {
  if (text.empty()) {
    return;
  }
  auto owned = std::make_shared<const std::string>(std::move(text));
  const std::string_view bytes = *owned;
  size_ += bytes.size();
  pieces_.push_back({bytes, std::move(owned)});
}

void Body::AppendShared(std::shared_ptr<const void> owner, std::string_view bytes) {
  if (bytes.empty()) {
    return;
  }
  size_ += bytes.size();
  pieces_.push_back({bytes, std::move(owner)});
}

std::string Body::Flatten() const {
  std::string text;
  text.reserve(size_);
  for (const Piece& piece : pieces_) {
    text.append(piece.bytes);
  }
  return text;
}

}  // namespace sublet::apiserver
