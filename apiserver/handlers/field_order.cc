#include "apiserver/handlers/field_order.h"

#include <algorithm>
#include <map>

namespace sublet::apiserver {
namespace {

constexpr int kTextDepthMax = 64;

// Walks a JSON document and notes where each member begins, and where it is repeated.
class Walker {
 public:
  explicit Walker(std::string_view text) : text_(text) {}

  // Path ("spec.containers[0].name") to the offsets of its first and last key.
  std::map<std::string, std::pair<std::size_t, std::size_t>, std::less<>> Run() {
    Value("", 0);
    return std::move(found_);
  }

 private:
  void Space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
  }

  std::string_view String() {
    const std::size_t begin = ++at_;
    while (at_ < text_.size() && text_[at_] != '"') {
      at_ += text_[at_] == '\\' ? 2 : 1;
    }
    const auto inside = text_.substr(begin, std::min(at_, text_.size()) - begin);
    ++at_;
    return inside;
  }

  void Value(const std::string& path, int depth) {
    Space();
    if (at_ >= text_.size() || depth > kTextDepthMax) {
      at_ = text_.size();
      return;
    }
    const char first = text_[at_];
    if (first == '{') {
      ++at_;
      Members(path, depth);
    } else if (first == '[') {
      ++at_;
      Items(path, depth);
    } else if (first == '"') {
      String();
    } else {
      while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '}' && text_[at_] != ']') {
        ++at_;
      }
    }
  }

  void Members(const std::string& path, int depth) {
    while (true) {
      Space();
      if (at_ >= text_.size() || text_[at_] != '"') {
        ++at_;
        return;
      }
      const std::size_t offset = at_;
      const std::string name(String());
      const std::string child = path.empty() ? name : path + "." + name;
      const auto [it, fresh] = found_.emplace(child, std::pair(offset, offset));
      if (!fresh) {
        it->second.second = offset;
      }
      Space();
      ++at_;  // the colon
      Value(child, depth + 1);
      Space();
      if (at_ >= text_.size() || text_[at_++] != ',') {
        return;
      }
    }
  }

  void Items(const std::string& path, int depth) {
    Space();
    if (at_ < text_.size() && text_[at_] == ']') {
      ++at_;
      return;
    }
    for (std::size_t i = 0; at_ < text_.size(); ++i) {
      Value(path + "[" + std::to_string(i) + "]", depth + 1);
      Space();
      if (at_ >= text_.size() || text_[at_++] != ',') {
        return;
      }
    }
  }

  const std::string_view text_;
  std::size_t at_ = 0;
  std::map<std::string, std::pair<std::size_t, std::size_t>, std::less<>> found_;
};

std::string_view FieldOf(std::string_view problem) {
  const auto begin = problem.find('"');
  const auto end = problem.rfind('"');
  return begin == std::string_view::npos || end <= begin
             ? std::string_view()
             : problem.substr(begin + 1, end - begin - 1);
}

}  // namespace

void SortByPosition(std::string_view body, std::vector<std::string>* problems) {
  if (problems->size() < 2) {
    return;
  }
  const auto places = Walker(body).Run();
  const auto place = [&](const std::string& problem) {
    const auto it = places.find(FieldOf(problem));
    if (it == places.end()) {
      return body.size();
    }
    return problem.starts_with("duplicate") ? it->second.second : it->second.first;
  };
  std::stable_sort(problems->begin(), problems->end(),
                   [&](const std::string& a, const std::string& b) { return place(a) < place(b); });
}

}  // namespace sublet::apiserver
