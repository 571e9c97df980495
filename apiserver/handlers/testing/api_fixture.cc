#include "apiserver/handlers/testing/api_fixture.h"

#include <stdlib.h>

#include <filesystem>
#include <future>

#include "apiserver/handlers/subresources.h"

namespace sublet::apiserver::testing {
namespace {

class PromiseResponder final : public Responder {
 public:
  explicit PromiseResponder(std::promise<Answer> promise) : promise_(std::move(promise)) {}
  ~PromiseResponder() override {
    if (!sent_) {
      Answer answer;
      answer.code = 500;
      answer.body = "{\"message\":\"responder destroyed unused\"}";
      promise_.set_value(std::move(answer));
    }
  }
  void Send(Response response) override { Finish(std::move(response), nullptr); }
  void SendStream(Response head, std::unique_ptr<ByteStream> stream) override {
    Finish(std::move(head), std::move(stream));
  }
  void SendUpgrade(Response head, Upgrade) override { Finish(std::move(head), nullptr); }

 private:
  void Finish(Response response, std::unique_ptr<ByteStream> stream) {
    sent_ = true;
    Answer answer;
    answer.code = response.code;
    answer.content_type = response.content_type;
    answer.headers = response.headers;
    answer.body = response.body.Flatten();
    answer.stream = std::move(stream);
    promise_.set_value(std::move(answer));
  }
  std::promise<Answer> promise_;
  bool sent_ = false;
};

}  // namespace

kube::Json Answer::Tree() const {
  auto tree = kube::ParseJson(body);
  return tree.ok() ? std::move(*tree) : kube::Json::object();
}

std::string Answer::Header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) {
      return value;
    }
  }
  return "";
}

WatchReader::WatchReader(std::unique_ptr<ByteStream> stream)
    : stream_(std::move(stream)),
      signal_(std::make_shared<std::pair<std::mutex, std::condition_variable>>()),
      woken_(std::make_shared<bool>(false)) {
  if (stream_ == nullptr) {
    ended_ = true;
    return;
  }
  stream_->Start([signal = signal_, woken = woken_] {
    const std::lock_guard lock(signal->first);
    *woken = true;
    signal->second.notify_all();
  });
}

kube::Json WatchReader::Next() {
  while (true) {
    if (const auto end = buffer_.find('\n'); end != std::string::npos) {
      auto tree = kube::ParseJson(buffer_.substr(0, end));
      buffer_.erase(0, end + 1);
      return tree.ok() ? std::move(*tree) : kube::Json();
    }
    if (ended_) {
      return nullptr;
    }
    {
      const std::lock_guard lock(signal_->first);
      *woken_ = false;
    }
    std::vector<Body::Piece> pieces;
    const auto state = stream_->Pull(pieces, 64 * 1024);
    for (const auto& piece : pieces) {
      buffer_ += piece.bytes;
      if (piece.decoded != nullptr) {
        ++trees_;
        const auto said = kube::ParseJson(piece.bytes);
        EXPECT_TRUE(said.ok());
        EXPECT_EQ(*static_cast<const kube::Json*>(piece.decoded.get()), *said);
      }
    }
    ended_ = state == ByteStream::State::kEnd;
    if (state == ByteStream::State::kWait && buffer_.find('\n') == std::string::npos) {
      std::unique_lock lock(signal_->first);
      if (!signal_->second.wait_for(lock, std::chrono::seconds(5), [&] { return *woken_; })) {
        return nullptr;
      }
    }
  }
}

Pool::Pool(int threads) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { Run(); });
  }
}

Pool::~Pool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ready_.notify_all();
  for (auto& thread : threads_) {
    thread.join();
  }
}

bool Pool::Post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  ready_.notify_one();
  return true;
}

void Pool::Run() {
  while (true) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      ready_.wait(lock, [&] { return stopping_ || !work_.empty(); });
      if (work_.empty()) {
        return;
      }
      work = std::move(work_.front());
      work_.pop_front();
    }
    work();
  }
}

ApiFixture::ApiFixture() {
  char pattern[] = "/tmp/sublet_api_XXXXXX";
  directory_ = mkdtemp(pattern);
  builtin_ = BuiltinResources();
  Restart();
}

ApiFixture::~ApiFixture() {
  definitions_.reset();
  handler_.reset();
  pool_.reset();
  fresh_trees_.reset();
  timers_.reset();
  store_.reset();
  std::filesystem::remove_all(directory_);
}

void ApiFixture::Restart() {
  definitions_.reset();
  handler_.reset();
  pool_.reset();
  fresh_trees_.reset();
  timers_.reset();
  store_.reset();
  storage::StoreOptions options;
  options.directory = directory_;
  options.make_attachment = MakeAttachmentFactory(builtin_);
  auto opened = storage::OpenSqliteStore(std::move(options));
  SUBLET_CHECK(opened.ok());
  store_ = std::move(*opened);
  catalog_ = std::make_unique<CatalogHolder>(builtin_);
  timers_ = std::make_unique<TimerQueue>();
  fresh_trees_ = std::make_unique<FreshTrees>(*timers_);
  pool_ = std::make_unique<Pool>(2);
  admission_ = MakeAdmissionChain(
      {.store = store_.get(), .catalog = catalog_.get(), .clock = &SystemClock()});
  context_.store = store_.get();
  context_.clock = &SystemClock();
  context_.catalog = catalog_.get();
  context_.admission = &admission_;
  context_.timers = timers_.get();
  context_.fresh_trees = fresh_trees_.get();
  context_.offload = [this](std::function<void()> work) { return pool_->Post(std::move(work)); };
  context_.authorize = [](const User&, const AccessQuestion&) { return Ok(); };
  AddPodSubresources(context_);
  handler_ = std::make_unique<ApiHandler>(&context_, "127.0.0.1:6443");
  definitions_ = std::make_unique<DefinitionController>(&context_);
  SUBLET_CHECK(definitions_->Start().ok());
}

std::unique_ptr<Request> ApiFixture::MakeRequest(
    std::string_view method, std::string_view path_and_query, std::string body,
    std::vector<std::pair<std::string, std::string>> headers) const {
  auto request = std::make_unique<Request>();
  request->method = std::string(method);
  const auto question = path_and_query.find('?');
  request->path = std::string(path_and_query.substr(0, question));
  request->raw_path = request->path;
  if (question != std::string_view::npos) {
    request->raw_query = std::string(path_and_query.substr(question + 1));
  }
  request->query = ParseQuery(request->raw_query);
  request->headers = std::move(headers);
  request->headers.emplace_back("user-agent", "test/1.0");
  request->body = std::move(body);
  request->remote_address = "loopback";
  request->loopback = true;
  request->user = user_;
  request->received = SystemClock().Now();
  request->info = ParseRequestInfo(request->method, request->path, request->query);
  return request;
}

Answer ApiFixture::Do(std::string_view method, std::string_view path_and_query,
                      std::string_view body,
                      std::vector<std::pair<std::string, std::string>> headers) {
  std::promise<Answer> promise;
  auto future = promise.get_future();
  handler_->Handle(MakeRequest(method, path_and_query, std::string(body), std::move(headers)),
                   std::make_unique<PromiseResponder>(std::move(promise)));
  return future.get();
}

WatchReader ApiFixture::Watch(std::string_view path) {
  return WatchReader(std::move(Get(path).stream));
}

void ApiFixture::MakeNamespace(std::string_view name) {
  const auto answer = Post("/api/v1/namespaces", {{"metadata", {{"name", std::string(name)}}}});
  ASSERT_EQ(answer.code, 201) << answer.body;
}

void ApiFixture::MakeDefinition(const kube::Json& definition) {
  const auto answer = Post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition);
  ASSERT_EQ(answer.code, 201) << answer.body;
  const auto name = definition["metadata"]["name"].get<std::string>();
  const auto established = GetUntil(
      "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + name, [](const Answer& now) {
        return now.body.find("\"InitialNamesAccepted\"") != std::string::npos;
      });
  ASSERT_NE(established.body.find("InitialNamesAccepted"), std::string::npos)
      << established.Tree()["status"];
}

Answer ApiFixture::GetUntil(std::string_view path, const std::function<bool(const Answer&)>& done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (true) {
    Answer answer = Get(path);
    if (done(answer) || std::chrono::steady_clock::now() > deadline) {
      return answer;
    }
    const auto revision = store_->CurrentRevision();
    store_->WaitForRevision(revision + 1, After(std::chrono::milliseconds(20)));
  }
}

}  // namespace sublet::apiserver::testing
