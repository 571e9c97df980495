#include "syncer/reporter.h"

#include <nlohmann/json.hpp>

#include "kube/object.h"

namespace sublet::syncer {
namespace {

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
}

}  // namespace

std::string Reporter::Sanitise(std::string_view text, std::string_view virtual_namespace) const {
  std::string out;
  std::size_t at = 0;
  while (at < text.size()) {
    if (!IsNameCharacter(text[at])) {
      out += text[at++];
      continue;
    }
    std::size_t end = at;
    while (end < text.size() && IsNameCharacter(text[end])) {
      ++end;
    }
    // A full stop that ends a sentence is no part of a name.
    std::string_view word = text.substr(at, end - at);
    std::string_view tail;
    while (word.ends_with('.') || word.ends_with('-')) {
      tail = text.substr(at + word.size() - 1, tail.size() + 1);
      word.remove_suffix(1);
    }
    const std::string suffix = "-x-" + tenant_.name;
    if (word == tenant_.host_namespace) {
      out += virtual_namespace;
    } else if (const auto key = mapping_.VirtualOfAny(word); key) {
      out += key->name;
    } else if (word.ends_with(suffix) && word.find("-x-") < word.size() - suffix.size()) {
      out += word.substr(0, word.find("-x-"));
    } else {
      out += word;
    }
    out += tail;
    at = end;
  }
  return out;
}

void Reporter::Warn(const kube::Json& object, std::string_view reason, std::string_view message) {
  recorder_.Event(client::EventTargetOf(object), "Warning", reason,
                  Sanitise(message, kube::NamespaceOf(object)));
}

void Reporter::Normal(const kube::Json& object, std::string_view reason, std::string_view message) {
  recorder_.Event(client::EventTargetOf(object), "Normal", reason,
                  Sanitise(message, kube::NamespaceOf(object)));
}

}  // namespace sublet::syncer
