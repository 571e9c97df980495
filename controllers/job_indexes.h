// Sets of completion indexes as Jobs write them ("1,3-5,7"). A value. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::controllers {

class IndexSet {
 public:
  // Parses; what is malformed or not below `limit` is left out (a status somebody wrote by hand).
  static IndexSet Parse(std::string_view text, std::int64_t limit);
  std::string Text() const;
  bool Has(std::int64_t index) const;
  void Add(std::int64_t index);
  std::int64_t size() const;
  bool empty() const { return ranges_.empty(); }

 private:
  struct Range {
    std::int64_t first;
    std::int64_t last;
  };
  std::vector<Range> ranges_;  // ascending, apart from each other by more than one
};

}  // namespace sublet::controllers
