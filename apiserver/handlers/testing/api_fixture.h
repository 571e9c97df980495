// ApiFixture: the handlers over a real store in a temporary folder, driven by Requests without a
// network: what apiserver_handlers_test builds on.
// Threads: one test thread; a small pool stands for the request pool.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "apiserver/admission/registry.h"
#include "apiserver/crd/definition_controller.h"
#include "apiserver/handlers/api_handler.h"
#include "apiserver/handlers/fresh_trees.h"
#include "apiserver/handlers/timer_queue.h"
#include "apiserver/registry/builtin.h"
#include "storage/store.h"

namespace sublet::apiserver::testing {

struct Answer {
  int code = 0;
  std::string content_type;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  std::unique_ptr<ByteStream> stream;

  kube::Json Tree() const;
  std::string Header(std::string_view name) const;
  std::string message() const { return Tree().value("message", ""); }
  std::string reason() const { return Tree().value("reason", ""); }
};

// Reads the frames of a watch with a time limit per frame. Each tree that comes with a frame must be
// what the frame says.
class WatchReader {
 public:
  explicit WatchReader(std::unique_ptr<ByteStream> stream);
  // The next event, or null when the stream ended or nothing came for five seconds.
  kube::Json Next();
  bool ended() const { return ended_; }
  // Frames so far that came with their tree.
  int trees() const { return trees_; }

 private:
  std::unique_ptr<ByteStream> stream_;
  std::shared_ptr<std::pair<std::mutex, std::condition_variable>> signal_;
  std::shared_ptr<bool> woken_;
  std::string buffer_;
  bool ended_ = false;
  int trees_ = 0;
};

class Pool {
 public:
  explicit Pool(int threads);
  ~Pool();
  bool Post(std::function<void()> work);

 private:
  void Run();
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> work_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

class ApiFixture : public ::testing::Test {
 protected:
  ApiFixture();
  ~ApiFixture() override;

  std::unique_ptr<Request> MakeRequest(
      std::string_view method, std::string_view path_and_query, std::string body,
      std::vector<std::pair<std::string, std::string>> headers) const;
  Answer Do(std::string_view method, std::string_view path_and_query, std::string_view body = "",
            std::vector<std::pair<std::string, std::string>> headers = {});
  Answer Post(std::string_view path, const kube::Json& object) {
    return Do("POST", path, object.dump());
  }
  Answer Put(std::string_view path, const kube::Json& object) {
    return Do("PUT", path, object.dump());
  }
  Answer Get(std::string_view path) { return Do("GET", path); }
  Answer Patch(std::string_view path, std::string_view type, const kube::Json& patch) {
    return Do("PATCH", path, patch.dump(), {{"content-type", std::string(type)}});
  }
  WatchReader Watch(std::string_view path);
  void MakeNamespace(std::string_view name);
  // Creates a definition and waits until it is Established.
  void MakeDefinition(const kube::Json& definition);
  // Polls a GET until `done` or five seconds have passed; returns the last answer.
  Answer GetUntil(std::string_view path, const std::function<bool(const Answer&)>& done);
  // Closes and opens the store again, as a restart does.
  void Restart();

  std::string directory_;
  std::vector<ResourcePtr> builtin_;
  std::unique_ptr<storage::Store> store_;
  std::unique_ptr<CatalogHolder> catalog_;
  AdmissionChain admission_;
  std::unique_ptr<TimerQueue> timers_;
  std::unique_ptr<FreshTrees> fresh_trees_;
  std::unique_ptr<Pool> pool_;
  ApiContext context_;
  std::unique_ptr<ApiHandler> handler_;
  std::unique_ptr<DefinitionController> definitions_;
  User user_{.name = "admin", .uid = "", .groups = {"system:masters"}, .extra = {}};
};

}  // namespace sublet::apiserver::testing
