#include "storage/entry.h"

#include <charconv>

#include "base/check.h"

namespace sublet::storage {
namespace {

struct Digits {
  explicit Digits(Revision revision) {
    length = static_cast<std::size_t>(std::to_chars(text, text + sizeof text, revision).ptr - text);
  }
  char text[20];
  std::size_t length = 0;
};

}  // namespace

ValuePtr MakeValue(std::string bytes, std::uint32_t revision_offset, Revision revision,
                   std::shared_ptr<const Attachment> attachment) {
  auto value = std::make_shared<Value>();
  value->attachment = std::move(attachment);
  if (revision_offset == kNoHole) {
    value->bytes = std::move(bytes);
    return value;
  }
  SUBLET_CHECK(revision_offset <= bytes.size());
  const Digits digits(revision);
  value->revision_offset = revision_offset;
  value->revision_length = static_cast<std::uint32_t>(digits.length);
  value->bytes.reserve(bytes.size() + digits.length);
  value->bytes.append(bytes, 0, revision_offset)
      .append(digits.text, digits.length)
      .append(bytes, revision_offset);
  return value;
}

ValuePtr AtRevision(const Value& value, Revision revision) {
  auto made = std::make_shared<Value>();
  made->attachment = value.attachment;
  made->revision_offset = value.revision_offset;
  if (value.revision_offset == kNoHole) {
    made->bytes = value.bytes;
    return made;
  }
  const Digits digits(revision);
  made->revision_length = static_cast<std::uint32_t>(digits.length);
  made->bytes.reserve(value.bytes.size() + digits.length - value.revision_length);
  made->bytes.append(value.bytes, 0, value.revision_offset)
      .append(digits.text, digits.length)
      .append(value.bytes, value.revision_offset + value.revision_length);
  return made;
}

std::string WithoutRevision(const Value& value) {
  std::string bytes = value.bytes;
  if (value.revision_offset != kNoHole) {
    bytes.erase(value.revision_offset, value.revision_length);
  }
  return bytes;
}

StoredEventPtr MakeEvent(RowId row, EntryRef before, EntryRef after) {
  SUBLET_CHECK(before || after);
  auto event = std::make_shared<StoredEvent>();
  event->revision = RevisionOf(row);
  event->row = row;
  event->key = after ? after->key : before->key;
  if (before) {
    event->previous = before->value;
  }
  if (after) {
    event->type = before ? EventType::kUpdate : EventType::kCreate;
    event->value = after->value;
  } else {
    event->type = EventType::kDelete;
    event->value = AtRevision(*before->value, event->revision);
  }
  event->before = std::move(before);
  return event;
}

}  // namespace sublet::storage
