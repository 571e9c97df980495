// Definitions: all files of a folder, created or (a second version of the same name) updated, until
// each is Established and its collection can be listed.
#include <dirent.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "e2e/bench/rows.h"
#include "kube/json.h"

namespace sublet::bench {
namespace {

constexpr char kDefinitions[] = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

std::vector<kube::Json> ReadDefinitions(const std::string& directory) {
  std::vector<std::string> names;
  DIR* folder = ::opendir(directory.c_str());
  if (folder == nullptr) {
    Fail("cannot read the folder " + directory);
  }
  while (const dirent* entry = ::readdir(folder)) {
    const std::string name = entry->d_name;
    if (name.ends_with(".json")) {
      names.push_back(name);
    }
  }
  ::closedir(folder);
  std::sort(names.begin(), names.end());
  std::vector<kube::Json> all;
  for (const auto& name : names) {
    std::ifstream file(directory + "/" + name);
    std::ostringstream text;
    text << file.rdbuf();
    auto parsed = kube::ParseJson(text.str());
    if (!parsed.ok()) {
      Fail(name + ": " + parsed.error().message());
    }
    auto definition = std::move(parsed).value();
    if (kube::FindString(definition, {"spec", "group"}).ends_with("k8s.io")) {
      definition["metadata"]["annotations"]["api-approved.kubernetes.io"] = "unapproved, bench";
    }
    all.push_back(std::move(definition));
  }
  return all;
}

bool IsEstablished(const kube::Json& definition) {
  const kube::Json* conditions = kube::Find(definition, {"status", "conditions"});
  if (conditions == nullptr) {
    return false;
  }
  for (const auto& one : *conditions) {
    if (kube::FindString(one, {"type"}) == "Established") {
      return kube::FindString(one, {"status"}) == "True";
    }
  }
  return false;
}

// Creates or updates; returns the name.
std::string Put(Fleet& fleet, kube::Json definition) {
  const std::string name(kube::FindString(definition, {"metadata", "name"}));
  std::string answer;
  int code = fleet.Ask(0, {.method = "POST", .path = kDefinitions, .body = kube::Dump(definition)},
                       &answer);
  // The server writes the status of a fresh definition, so an update may lose against it.
  for (int attempt = 0; code == 409 && attempt < 50; ++attempt) {
    const std::string path = std::string(kDefinitions) + "/" + name;
    std::string current;
    fleet.Ask(0, {.path = path}, &current);
    const auto parsed = kube::ParseJson(current);
    definition["metadata"]["resourceVersion"] =
        std::string(kube::FindString(parsed.value(), {"metadata", "resourceVersion"}));
    answer.clear();
    code = fleet.Ask(0, {.method = "PUT", .path = path, .body = kube::Dump(definition)}, &answer);
  }
  if (code != 200 && code != 201) {
    Fail(name + " was answered " + std::to_string(code) + ": " + answer.substr(0, 400));
  }
  return name;
}

void AwaitEstablished(Fleet& fleet, std::size_t wanted) {
  const auto deadline = Clock::now() + std::chrono::seconds(120);
  for (;;) {
    std::string text;
    fleet.Ask(0, {.path = kDefinitions}, &text);
    const auto list = kube::ParseJson(text, {.bytes_max = 256u << 20});
    if (!list.ok()) {
      Fail("the list of definitions: " + list.error().message());
    }
    const auto& items = list.value().at("items");
    if (static_cast<std::size_t>(std::count_if(items.begin(), items.end(), IsEstablished)) >=
        wanted) {
      return;
    }
    if (Clock::now() > deadline) {
      Fail("not all definitions became Established");
    }
  }
}

}  // namespace

void MeasureCrds(const Setting& setting, const std::string& directory) {
  const auto definitions = ReadDefinitions(directory);
  Fleet fleet(setting.target, 1);
  std::map<std::string, std::string> paths;  // by name: of the collection
  Usage usage(setting.pids);
  const auto begin = Clock::now();
  for (const auto& definition : definitions) {
    const std::string name = Put(fleet, definition);
    for (const auto& version : definition.at("spec").at("versions")) {
      if (kube::FindBool(version, {"served"})) {
        paths[name] = "/apis/" + std::string(kube::FindString(definition, {"spec", "group"})) +
                      "/" + std::string(kube::FindString(version, {"name"})) + "/" +
                      std::string(kube::FindString(definition, {"spec", "names", "plural"}));
      }
    }
  }
  AwaitEstablished(fleet, paths.size());
  const double established = std::chrono::duration<double>(Clock::now() - begin).count();
  for (const auto& [name, path] : paths) {
    int code = 0;
    for (int i = 0; i < 200 && (code = fleet.Ask(0, {.path = path})) != 200; ++i) {
      fleet.Poll(std::chrono::milliseconds(20));
    }
    if (code != 200) {
      Fail("the list of " + name + " was answered " + std::to_string(code));
    }
  }
  const double listed = std::chrono::duration<double>(Clock::now() - begin).count();
  const std::string title = std::to_string(paths.size()) + " CRDs";
  Row row(setting.server, title + ", all Established", "s", false);
  row.Value(established).Note("listed_s", listed);
  usage.End(definitions.size(), &row);
  row.Print();
  Row(setting.server, title + ", PSS", "MiB", false).Value(PssMiB(setting.pids)).Print();
}

}  // namespace sublet::bench
