// SPDX-License-Identifier: Apache-2.0
// listen [SOUND] [options]: reads a sound file, and writes a picture of its log-mel spectrogram and
// one of its power over frequency, in which the peaks are marked. tenon computes spectra and peaks;
// libsndfile reads, libpng writes. Without a file, it makes a sound of known tones, and fails
// unless it finds them.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <sndfile.h>
#include <tenon/tenon.hpp>

#include "arguments.hpp"
#include "picture.hpp"

namespace {

constexpr const char* kUsage =
    "usage: listen [SOUND] [--out PREFIX] [--n-fft N] [--mels N] [--peaks N] [--values FILE] "
    "[--device D]\n"
    "  SOUND       a file that libsndfile reads, such as a WAV; absent: a sound of known tones is "
    "made\n"
    "  --out       pictures are PREFIX_mel.png and PREFIX_power.png; the sound made is "
    "PREFIX_tones.wav [listen]\n"
    "  --n-fft     samples of a segment, 64 to 65536 [2048]\n"
    "  --mels      bands of the spectrogram, 8 to 256 [80]\n"
    "  --peaks     at most so many peaks, 1 to 100 [8]\n"
    "  --values    also write the numbers of the pictures, as a safetensors file\n"
    "  --device    where tenon computes [auto]\n";

struct Options {
  std::string sound{}, out = "listen", values{}, device = "auto";
  int64_t n_fft = 2048, mels = 80, peaks = 8;
};

Options parse(int argc, char** argv) {
  answer_help(argc, argv, kUsage);
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (!name.starts_with("-")) {
      if (!o.sound.empty())
        throw Usage("expected one sound, got '" + o.sound + "' and '" + argv[i] + "'");
      if (name.empty()) throw Usage("the name of the sound is empty");
      o.sound = name;
      continue;
    }
    const std::array<std::string_view, 6> known = {"--out",   "--n-fft",  "--mels",
                                                   "--peaks", "--values", "--device"};
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw Usage("unknown option " + std::string(name));
    if (++i == argc) throw Usage(std::string(name) + ": expected a value");
    if (name == "--out") o.out = argv[i];
    if (name == "--values") o.values = argv[i];
    if (name == "--device") o.device = argv[i];
    if (name == "--n-fft") o.n_fft = number(name, argv[i], 64, 65536);
    if (name == "--mels") o.mels = number(name, argv[i], 8, 256);
    if (name == "--peaks") o.peaks = number(name, argv[i], 1, 100);
  }
  if (o.out.empty())
    throw Usage("--out: expected the beginning of the names of files, got nothing");
  return o;
}

// ---- sounds

struct Sound {
  std::vector<float> samples{};  // the mean of the channels
  int rate = 0;
};

struct SoundFile {
  SF_INFO info{};
  SNDFILE* file;
  SoundFile(const std::string& name, int mode, SF_INFO form = {})
      : info(form), file(sf_open(name.c_str(), mode, &info)) {
    if (!file) throw std::runtime_error(name + ": " + sf_strerror(nullptr));
  }
  ~SoundFile() { sf_close(file); }
  SoundFile(const SoundFile&) = delete;
  SoundFile& operator=(const SoundFile&) = delete;
};

constexpr int64_t kMostSeconds = 600;
constexpr int kMostChannels = 64;
constexpr float kLoudest = 1e6f;  // powers of louder samples may overflow

Sound read(const std::string& name) {
  const SoundFile in(name, SFM_READ);
  const int channels = in.info.channels;
  if (channels < 1 || channels > kMostChannels)
    throw std::runtime_error(name + ": has " + std::to_string(channels) +
                             " channels, expected 1 to " + std::to_string(kMostChannels));
  if (in.info.samplerate < 1) throw std::runtime_error(name + ": has no sampling rate");
  const int64_t most = kMostSeconds * in.info.samplerate;
  Sound s;
  s.rate = in.info.samplerate;
  // The header may promise more than the file has, so the samples are read in blocks.
  std::vector<float> block(static_cast<size_t>(4096 * channels));
  float loudest = 0;
  bool more = false;
  for (sf_count_t n; !more && (n = sf_readf_float(in.file, block.data(), 4096)) > 0;)
    for (sf_count_t i = 0; i < n && !more; ++i) {
      if (static_cast<int64_t>(s.samples.size()) == most) {
        more = true;
        break;
      }
      float sum = 0;
      for (int c = 0; c < channels; ++c) {
        const float v = block[static_cast<size_t>(i * channels + c)];
        if (!(std::abs(v) <= kLoudest))  // NaN, too
          throw std::runtime_error(name + ": sample " + std::to_string(s.samples.size()) +
                                   " of channel " + std::to_string(c + 1) + " is " +
                                   std::to_string(v) + "; expected at most " +
                                   std::to_string(kLoudest) + " times full scale");
        loudest = std::max(loudest, std::abs(v));
        sum += v / static_cast<float>(channels);
      }
      s.samples.push_back(sum);
    }
  std::printf("%s: %.2f s, %d samples per second, %d channel%s\n", name.c_str(),
              static_cast<double>(s.samples.size()) / s.rate, s.rate, channels,
              channels == 1 ? "" : "s, mixed into one");
  if (more)
    std::printf("the sound is longer; the first %lld seconds are used\n",
                static_cast<long long>(kMostSeconds));
  if (loudest > 1)
    std::printf("the loudest sample is %g times full scale; nothing is clipped\n",
                static_cast<double>(loudest));
  return s;
}

// Tones of the sound that is made: cycles per second, and how loud.
constexpr std::array<std::array<double, 2>, 4> kTones = {
    {{440, 0.3}, {1250, 0.2}, {3000, 0.1}, {6100, 0.05}}};

// Two seconds of the tones, a soft tone that rises through all frequencies, and noise.
void make(const std::string& name) {
  constexpr int kRate = 16000, kSamples = 2 * kRate;
  std::vector<float> samples;
  uint32_t random = 1;
  for (int i = 0; i < kSamples; ++i) {
    const double t = static_cast<double>(i) / kRate;
    double v = 0.01 * std::sin(2 * M_PI * (50 * t + 1900 * t * t));
    for (const auto& [frequency, loud] : kTones) v += loud * std::sin(2 * M_PI * frequency * t);
    random = random * 1664525 + 1013904223;
    v += 0.002 * (random / 2147483648.0 - 1);
    samples.push_back(static_cast<float>(v));
  }
  const SoundFile out(name, SFM_WRITE,
                      {.frames = 0,
                       .samplerate = kRate,
                       .channels = 1,
                       .format = SF_FORMAT_WAV | SF_FORMAT_FLOAT,
                       .sections = 0,
                       .seekable = 0});
  if (sf_writef_float(out.file, samples.data(), kSamples) != kSamples)
    throw std::runtime_error(name + ": write: " + sf_strerror(out.file));
}

// ---- spectra

struct Spectra {
  std::vector<float> mel{};    // [mels, frames]: log10 of powers
  std::vector<float> power{};  // decibels of each frequency
  std::vector<int> peaks{};    // indices into power, the highest first
  int64_t frames = 0;
};

Spectra spectra(const Sound& s, const Options& o) {
  const auto size = static_cast<int64_t>(s.samples.size());
  tenon::Graph g("listen");
  const tenon::Value x = g.input("x", {tenon::f32, {1, size}});
  const tenon::Value mel = g.log_mel_spectrogram(x, {.sr = static_cast<double>(s.rate),
                                                     .n_fft = o.n_fft,
                                                     .hop = o.n_fft / 4,
                                                     .n_mels = o.mels,
                                                     .affine = false});
  const tenon::Value power =
      g.welch_psd(x, {.fs = static_cast<double>(s.rate), .nperseg = o.n_fft});
  const tenon::Value decibels = 10.0 / std::log(10.0) * g.log(power + 1e-20);
  // A peak rises by 10 dB from the valleys beside it.
  const tenon::Node peaks =
      g.spectrum_peaks(decibels, {.k = o.peaks, .min_distance = 4, .prominence = 10});
  g.output("mel", mel);
  g.output("power", decibels);
  g.output("peaks", peaks[0]);
  g.output("count", peaks[2]);

  const tenon::Runtime runtime;
  tenon::Store store(runtime);
  const tenon::Executable executable(runtime, g, store, {.device = o.device});
  tenon::Context run(executable);
  run.set("x", {1, size}, s.samples);
  run.run();
  Spectra out{.mel = run.get<float>("mel"),
              .power = run.get<float>("power"),
              .frames = g.type(mel).dims[2]};
  if (!o.values.empty()) {
    store.set(TENON_SPACE_STATE, "mel", {o.mels, out.frames}, out.mel);
    store.set(TENON_SPACE_STATE, "power", {static_cast<int64_t>(out.power.size())}, out.power);
    store.save(TENON_SPACE_STATE, o.values);
  }
  // The highest peak comes first. What lies 80 dB below it is rounding.
  const std::vector<int32_t> found = run.get<int32_t>("peaks");
  const auto level = [&](int32_t bin) { return out.power[static_cast<size_t>(bin)]; };
  for (int32_t k = 0; k < run.get<int32_t>("count")[0]; ++k)
    if (level(found[static_cast<size_t>(k)]) > level(found[0]) - 80)
      out.peaks.push_back(found[static_cast<size_t>(k)]);
  return out;
}

// ---- pictures

struct Colour {
  float red, green, blue;
};
constexpr Colour kMark{0.0f, 0.9f, 0.9f};  // on the dark spectrogram
constexpr Colour kPeak{0.9f, 0.0f, 0.1f};  // on the white chart

// From black over purple and orange to light yellow; v from 0 to 1.
Colour heat(float v) {
  constexpr std::array<Colour, 5> stops = {{{0, 0, 0.02f},
                                            {0.34f, 0.06f, 0.43f},
                                            {0.74f, 0.22f, 0.33f},
                                            {0.98f, 0.56f, 0.04f},
                                            {0.99f, 1.0f, 0.75f}}};
  const float at = std::clamp(v, 0.0f, 1.0f) * (stops.size() - 1);
  const auto i = std::min(static_cast<size_t>(at), stops.size() - 2);
  const float part = at - static_cast<float>(i);
  const auto mix = [&](float Colour::*c) {
    return stops[i].*c * (1 - part) + stops[i + 1].*c * part;
  };
  return {mix(&Colour::red), mix(&Colour::green), mix(&Colour::blue)};
}

// Slaney's scale, which the spectrogram uses.
double mel_of(double hertz) {
  return hertz < 1000 ? 3 * hertz / 200 : 15 + 27 * std::log(hertz / 1000) / std::log(6.4);
}

// Time from left to right, bands from below; frames are averaged where there are too many. A mark
// at both sides shows each peak.
Picture mel_picture(const Spectra& s, const Options& o, int rate) {
  constexpr int64_t kWidest = 1200;
  const int64_t together = (s.frames + kWidest - 1) / kWidest;  // frames in a column
  const int64_t columns = (s.frames + together - 1) / together;
  const int wide = static_cast<int>(std::max<int64_t>(1, 600 / columns));
  const int high = static_cast<int>(std::max<int64_t>(1, 400 / o.mels));
  Picture p(static_cast<int>(columns) * wide, static_cast<int>(o.mels) * high);
  const auto [low, top] = std::minmax_element(s.mel.begin(), s.mel.end());
  const float from = *low, range = std::max(*top - *low, 1e-6f);
  for (int y = 0; y < p.height(); ++y) {
    const float* const band = s.mel.data() + (o.mels - 1 - y / high) * s.frames;
    for (int x = 0; x < p.width(); ++x) {
      const int64_t first = x / wide * together, last = std::min(first + together, s.frames);
      float sum = 0;
      for (int64_t f = first; f < last; ++f) sum += band[f];
      const Colour c = heat((sum / static_cast<float>(last - first) - from) / range);
      p.set(x, y, c.red, c.green, c.blue);
    }
  }
  for (const int peak : s.peaks) {
    // Band b is centred at (b + 1) / (bands + 1) of the scale.
    const double share = mel_of(peak * static_cast<double>(rate) / static_cast<double>(o.n_fft)) /
                         mel_of(rate / 2.0);
    const double band = share * static_cast<double>(o.mels + 1) - 0.5;
    const int y = p.height() - 1 - static_cast<int>(band * high);
    for (int x = 0; x < 12; ++x)
      for (int dy = -1; dy <= 1; ++dy) {
        p.set(x, y + dy, kMark.red, kMark.green, kMark.blue);
        p.set(p.width() - 1 - x, y + dy, kMark.red, kMark.green, kMark.blue);
      }
  }
  return p;
}

// Frequency from left to right, decibels upwards, with a line for every 20 dB.
Picture power_picture(const Spectra& s) {
  constexpr int kWidth = 1000, kHeight = 400, kEdge = 12;
  Picture p(kWidth, kHeight);
  const auto [low, top] = std::minmax_element(s.power.begin() + 1, s.power.end());
  const float most = *top, least = std::max(*low, most - 120),
              range = std::max(most - least, 1e-3f);
  const auto row = [&](float decibels) {
    return kEdge +
           static_cast<int>(std::min((most - decibels) / range, 1.0f) * (kHeight - 1 - 2 * kEdge));
  };
  const auto bins = static_cast<int>(s.power.size());
  const auto column = [&](int bin) {
    return static_cast<int>(static_cast<int64_t>(bin) * (kWidth - 1) / (bins - 1));
  };
  for (int level = 0; static_cast<float>(level) <= range; level += 20)
    for (int x = 0; x < kWidth; ++x)
      p.set(x, row(most - static_cast<float>(level)), 0.88f, 0.88f, 0.88f);
  for (int bin = 1; bin + 1 < bins; ++bin)
    for (int x = column(bin); x <= column(bin + 1); ++x) {  // all rows from bin to bin
      const int a = row(s.power[static_cast<size_t>(bin)]),
                b = row(s.power[static_cast<size_t>(bin + 1)]);
      for (int y = std::min(a, b); y <= std::max(a, b); ++y) p.set(x, y, 0.1f, 0.2f, 0.55f);
    }
  for (const int peak : s.peaks)
    p.disc(column(peak), row(s.power[static_cast<size_t>(peak)]), 5, kPeak.red, kPeak.green,
           kPeak.blue);
  return p;
}

// The tones of the sound that was made, and nothing else, within half a bin.
bool found_all(const std::vector<double>& hertz, double bin) {
  return hertz.size() == kTones.size() &&
         std::all_of(kTones.begin(), kTones.end(), [&](const auto& tone) {
           return std::any_of(hertz.begin(), hertz.end(),
                              [&](double h) { return std::abs(h - tone[0]) <= bin / 2 + 1e-9; });
         });
}

int listen(const Options& o) {
  const std::string mel_file = o.out + "_mel.png", power_file = o.out + "_power.png";
  for (const std::string& file : {mel_file, power_file}) check_writable(file);
  if (!o.values.empty()) check_writable(o.values);
  const std::string own = o.out + "_tones.wav";
  if (o.sound.empty()) make(own);
  const Sound sound = read(o.sound.empty() ? own : o.sound);
  if (static_cast<int64_t>(sound.samples.size()) < o.n_fft)
    throw std::runtime_error("the sound is too short: expected at least " +
                             std::to_string(o.n_fft) + " samples, a segment of --n-fft, got " +
                             std::to_string(sound.samples.size()));
  const Spectra s = spectra(sound, o);
  mel_picture(s, o, sound.rate).write(mel_file);
  power_picture(s).write(power_file);
  const double bin = static_cast<double>(sound.rate) / static_cast<double>(o.n_fft);
  std::vector<double> hertz;
  for (const int peak : s.peaks) {
    hertz.push_back(peak * bin);
    std::printf("peak at %.1f Hz, %.1f dB\n", hertz.back(),
                static_cast<double>(s.power[static_cast<size_t>(peak)]));
  }
  if (s.peaks.empty()) std::printf("no peaks\n");
  std::printf("%s: log-mel spectrogram, %lld bands up to %g Hz; %s: power, lines 20 dB apart\n",
              mel_file.c_str(), static_cast<long long>(o.mels), sound.rate / 2.0,
              power_file.c_str());
  // With other segments or fewer peaks than tones, not all tones are peaks.
  const Options usual;
  const bool judged =
      o.sound.empty() && o.n_fft == usual.n_fft && o.peaks >= static_cast<int64_t>(kTones.size());
  if (!judged || found_all(hertz, bin)) return 0;
  std::fprintf(stderr, "listen: the peaks are not the tones of the sound that was made\n");
  return 1;
}

}  // namespace

int main(int argc, char** argv) try { return listen(parse(argc, argv)); } catch (const Usage& e) {
  std::fprintf(stderr, "listen: %s\n%s", e.what(), kUsage);
  return 2;
} catch (const std::exception& e) {
  std::fprintf(stderr, "listen: %s\n", e.what());
  return 1;
}
