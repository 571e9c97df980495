#include "kube/kinds/go_shown.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "kube/kinds/go_types.h"

namespace sublet::kube {
namespace {

// A field of a structure; see go_types.h.
struct GoField {
  std::string_view shown, parent, sent, type;
  bool omit_empty, omit_zero, is_struct;
};
using GoStructures = std::map<std::string_view, std::vector<GoField>>;

std::string_view CutWord(std::string_view* line) {
  const std::string_view found = line->substr(0, line->find(' '));
  line->remove_prefix(std::min(line->size(), found.size() + 1));
  return found;
}

GoField ParseGoField(std::string_view line) {
  GoField field;
  field.shown = CutWord(&line);
  field.sent = CutWord(&line);
  field.type = CutWord(&line);
  if (const std::size_t slash = field.sent.find('/'); slash != std::string_view::npos) {
    field.parent = field.sent.substr(0, slash);
    field.sent.remove_prefix(slash + 1);
  }
  field.omit_empty = line.find('o') != std::string_view::npos;
  field.omit_zero = line.find('z') != std::string_view::npos;
  field.is_struct = std::string_view("*[{sibqxtj").find(field.type[0]) == std::string_view::npos;
  return field;
}

const GoStructures& AllStructures() {
  static const GoStructures kAll = [] {
    GoStructures all;
    std::vector<GoField>* open = nullptr;
    for (std::string_view rest = kGoTypes; !rest.empty();) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      if (line.starts_with('@')) {
        open = &all[line.substr(1)];
      } else if (!line.empty()) {
        open->push_back(ParseGoField(line));
      }
    }
    return all;
  }();
  return kAll;
}

const Json& MemberOrNull(const Json& object, std::string_view key) {
  static const Json kNull;
  const Json* value = Find(object, {key});
  return value == nullptr ? kNull : *value;
}

// A pod's namespaces of the host stand beside its security context in requests and inside it here.
Json WithHostFields(const Json& spec) {
  Json out = MemberOrNull(spec, "securityContext");
  for (const char* key :
       {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"}) {
    const Json& value = MemberOrNull(spec, key);
    if (!value.is_null() && (out.is_null() || out.is_object())) {
      out[key] = value;
    }
  }
  return out;
}

// Whether `text` stands for itself between quotes; most does.
bool IsPlain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return c >= ' ' && c <= '~' && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&';
  });
}

// Appends a text or number as Go's encoder writes it: '<', '>' and '&' escaped for browsers.
void AppendQuoted(const Json& value, std::string* out) {
  const auto* text = value.get_ptr<const std::string*>();
  if (text != nullptr && IsPlain(*text)) {
    out->append(1, '"').append(*text).append(1, '"');
    return;
  }
  for (const char c : Dump(value)) {
    switch (c) {
      case '<': *out += "\\u003c"; break;
      case '>': *out += "\\u003e"; break;
      case '&': *out += "\\u0026"; break;
      default: *out += c;
    }
  }
}

// Prints until the cost is spent.
class GoPrinter {
 public:
  GoPrinter(bool pretty, GoTextCost* cost) : pretty_(pretty), cost_(cost) {}

  void Value(std::string_view type, const Json& value, int depth) {
    switch (type.empty() ? 'j' : type[0]) {
      case '*': return value.is_null() ? Text("null") : Value(type.substr(1), value, depth);
      case '[': return List(type.substr(1), value, depth);
      case '{': return Map(type.substr(1), value, depth);
      case 's': return Scalar(value, "\"\"");
      case 'i': return Scalar(value, "0");
      case 'b': return Scalar(value, "false");
      case 'q': return Scalar(value, "\"0\"");
      case 'x': return Scalar(value, "0");
      case 't':
      case 'j': return Any(value, depth);
      default: return Struct(type, value, depth);
    }
  }

  std::string Take() { return std::move(out_); }

 private:
  void Text(std::string_view text) { out_ += text; }

  void Scalar(const Json& value, std::string_view none) {
    const std::size_t before = out_.size();
    value.is_null() ? Text(none) : AppendQuoted(value, &out_);
    cost_->Take((out_.size() - before) / 32);
  }

  // Goes to the next item; `first` when none was printed yet. False: no more are to be printed.
  bool Next(bool first, int depth) {
    if (!cost_->Take()) {
      return false;
    }
    out_ += first ? "" : ",";
    Line(depth);
    return true;
  }

  void Line(int depth) {
    if (pretty_) {
      out_ += '\n';
      out_.append(static_cast<std::size_t>(depth), ' ');
    }
  }

  void Key(std::string_view key) {
    if (IsPlain(key)) {
      out_.append(1, '"').append(key).append(1, '"');
    } else {
      Scalar(Json(key), "");
    }
    out_ += pretty_ ? ": " : ":";
  }

  void List(std::string_view type, const Json& value, int depth) {
    if (!value.is_array()) {
      return Text("null");
    }
    out_ += '[';
    bool first = true;
    for (const Json& item : value) {
      if (!Next(first, depth + 1)) {
        return;
      }
      Value(type, item, depth + 1);
      first = false;
    }
    Close(first, ']', depth);
  }

  void Map(std::string_view type, const Json& value, int depth) {
    if (!value.is_object()) {
      return Text("null");
    }
    out_ += '{';
    bool first = true;
    for (const auto& [key, item] : value.items()) {
      if (!Next(first, depth + 1)) {
        return;
      }
      Key(key);
      Value(type, item, depth + 1);
      first = false;
    }
    Close(first, '}', depth);
  }

  void Close(bool empty, char bracket, int depth) {
    if (cost_->Spent()) {
      return;
    }
    if (!empty) {
      Line(depth);
    }
    out_ += bracket;
  }

  void Any(const Json& value, int depth) {
    if (value.is_object()) {
      Map("j", value, depth);
    } else if (value.is_array()) {
      List("j", value, depth);
    } else {
      Scalar(value, "null");
    }
  }

  void Struct(std::string_view type, const Json& value, int depth) {
    const auto found = AllStructures().find(type);
    if (found == AllStructures().end()) {
      return Any(value, depth);
    }
    const bool is_pod = type == "PodSpec";
    const Json context = is_pod ? WithHostFields(value) : Json();
    out_ += '{';
    bool first = true;
    for (const GoField& field : found->second) {
      const Json& holder = field.parent.empty() ? value : MemberOrNull(value, field.parent);
      const Json& member =
          is_pod && field.sent == "securityContext" ? context : MemberOrNull(holder, field.sent);
      if (!cost_->Take()) {
        return;
      }
      first = LeftOut(field, member) ? first : (Field(field, member, first, depth + 1), false);
    }
    Close(first, '}', depth);
  }

  static bool LeftOut(const GoField& field, const Json& value) {
    const bool zero = value.is_string() ? value.get_ref<const std::string&>().empty()
                                        : value.empty() || value == Json(0) || value == Json(false);
    return (field.omit_empty && zero && !field.is_struct && field.type != "t") ||
           (field.omit_zero && value.is_null());
  }

  void Field(const GoField& field, const Json& value, bool first, int depth) {
    if (Next(first, depth)) {
      Key(field.shown);
      Value(field.type, value, depth);
    }
  }

  const bool pretty_;
  GoTextCost* const cost_;
  std::string out_;
};

std::string PrintAsGo(std::string_view type, const Json& value, bool pretty, GoTextCost* cost) {
  std::string coded(type);
  for (std::size_t at = 0; (at = coded.find("[]", at)) != std::string::npos; ++at) {
    coded.erase(at + 1, 1);
  }
  GoPrinter printer(pretty, cost);
  printer.Value(coded, value, 0);
  return printer.Take();
}

}  // namespace

std::string ShownAsGo(std::string_view type, const Json& value) {
  GoTextCost cost;
  std::string text = PrintAsGo(type, value, false, &cost);
  text += cost.Spent() ? "..." : "";
  return text;
}

std::string LinesAsGo(std::string_view type, const Json& value, GoTextCost* cost) {
  return PrintAsGo(type, value, true, cost);
}

}  // namespace sublet::kube
