# SPDX-License-Identifier: Apache-2.0
"""programs.py LISTEN NEIGHBOURS: the numbers behind the pictures of these examples, beside SciPy, PyTorch and scikit-learn. What
has no judge here is left out, and said so. Exits with 77 (skip) where SciPy or PyTorch is absent."""
import json, pathlib, re, struct, subprocess, sys, tempfile, warnings

try:
    import numpy
    import scipy.io.wavfile
    import scipy.signal
    import torch
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
from spectra import mel_filters

LISTEN, NEIGHBOURS = sys.argv[1:3]
warnings.simplefilter("ignore", scipy.io.wavfile.WavFileWarning)  # of chunks beside the samples
KINDS = {"F32": numpy.float32, "I32": numpy.int32}


def values(file):
    data = file.read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    tensors = {k: t for k, t in json.loads(data[8:start]).items() if k != "__metadata__"}
    return {k: numpy.frombuffer(data[start + t["data_offsets"][0]:start + t["data_offsets"][1]], KINDS[t["dtype"]]).reshape(t["shape"])
            for k, t in tensors.items()}


def check(name, good, value):
    print(f"{'ok ' if good else 'BAD'} {name}: {value}")
    assert good, name


def listen(work):
    n_fft, mels = 2048, 80
    said = subprocess.run([LISTEN, "--out", work / "l", "--values", work / "l.st"], check=True, capture_output=True, text=True).stdout
    got = values(work / "l.st")
    rate, x = scipy.io.wavfile.read(work / "l_tones.wav")
    x = x.astype(numpy.float64)
    hertz, power = scipy.signal.welch(x, rate, nperseg=n_fft)
    decibels = 10 * numpy.log10(power + 1e-20)
    # Bin 0 is what remains of the mean: rounding.
    check("power in dB, as SciPy's welch has it", numpy.abs(got["power"] - decibels)[1:].max() < 0.01, numpy.abs(got["power"] - decibels)[1:].max())
    at, _ = scipy.signal.find_peaks(decibels, prominence=10, distance=4)
    at = sorted(at[decibels[at] > decibels[at].max() - 80], key=lambda i: -decibels[i])[:8]
    peaks = [float(h) for h in re.findall(r"peak at ([\d.]+) Hz", said)]
    check("peaks, as SciPy's find_peaks has them", numpy.allclose(peaks, hertz[at], atol=0.06), (peaks, list(hertz[at])))
    t = torch.stft(torch.tensor(x), n_fft, n_fft // 4, window=torch.hann_window(n_fft, dtype=torch.float64), return_complex=True)
    mel = numpy.log10(numpy.maximum(mel_filters(rate, n_fft, mels, 0, rate / 2, "slaney", "slaney") @ (t.abs().numpy() ** 2)[:, :-1], 1e-10))
    mel = numpy.maximum(mel, mel.max() - 8)
    check("log-mel spectrogram, by PyTorch's stft and librosa's filters", numpy.abs(got["mel"] - mel).max() < 1e-3, numpy.abs(got["mel"] - mel).max())
    try:
        import librosa
        judge = librosa.feature.melspectrogram(y=x, sr=rate, n_fft=n_fft, hop_length=n_fft // 4, n_mels=mels, pad_mode="reflect")[:, :-1]
        judge = numpy.log10(numpy.maximum(judge, 1e-10))
        judge = numpy.maximum(judge, judge.max() - 8)
        check("log-mel spectrogram, as librosa has it", numpy.abs(got["mel"] - judge).max() < 1e-3, numpy.abs(got["mel"] - judge).max())
    except ImportError:
        print("without librosa: the spectrogram is judged by its formula")


def neighbours(work):
    n, k = 1000, 15
    subprocess.run([NEIGHBOURS, "--points", str(n), "--steps", "1", "--out", work / "n.png", "--values", work / "n.st"], check=True,
                   capture_output=True)
    got = values(work / "n.st")
    d = got["distance"].astype(numpy.float64)
    for row, nearest, weights in zip(d, d[:, 0], got["strength"]):
        low, high = 0.0, 1e3
        for _ in range(100):
            width = (low + high) / 2
            low, high = (low, width) if numpy.exp(-(row - nearest) / width).sum() > numpy.log2(k) else (width, high)
        assert numpy.abs(weights - numpy.exp(-(row - nearest) / width)).max() < 1e-4, (weights, width)
    print("ok  strengths of edges add up to log2(k)")
    try:
        from sklearn.neighbors import NearestNeighbors
    except ImportError:
        print("without scikit-learn: neighbours are not judged")
        return
    distance, index = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(got["points"].astype(numpy.float64)).kneighbors()
    check("neighbours, as scikit-learn has them", (index == got["index"]).all() and numpy.allclose(distance, d, rtol=1e-6),
          f"{(index == got['index']).mean():.4f} equal, distances apart {numpy.abs(distance - d).max():.1e}")


with tempfile.TemporaryDirectory() as temporary:
    listen(pathlib.Path(temporary))
    neighbours(pathlib.Path(temporary))
