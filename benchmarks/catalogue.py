# ruff: noqa: E501 - addresses
"""Files of data sets that are not in the repository: where to get them, their SHA-256."""

#: By folder: where its files come from, and the digest of each.
FILES: dict[str, tuple[str, dict[str, str]]] = {
    "bif_networks": (
        "https://www.bnlearn.com/bnrepository (the files of the package pgmpy 1.1.2)",
        {
            "alarm.bif.gz": "f5860caa7137b5817e0c4f169cce0f1451ce6c246b96f5ce4fb4a8167993be29",
            "andes.bif.gz": "dc9cd41e8658c4fd2b96305cc60392224032f02934d27e43123a61c2eab9dab7",
            "asia.bif.gz": "7d5e7b8549834824c1b05f367eb7860fa3fca3adaf3649f0c7be6035af197197",
            "barley.bif.gz": "b8a18fdb91701da379f260eea0808bdaa690612f7de9a34397df8d8f5d43afd9",
            "cancer.bif.gz": "dcfafbaadabcd1b8c9ec531e16721a19fc06829e980a3967d6345496ea081818",
            "child.bif.gz": "2bc3236dcbdbf9c9f1bbdeb060aa93c0bdee389d23a549b7248b9d89ed8a980c",
            "diabetes.bif.gz": "2100374d7be11024e708a50cac537102ef9f9b693aba4cc0e6918a60e4599d59",
            "earthquake.bif.gz": "77a41f1d509cea15eb7caf9dba932907837149e7145a2cc9d6c95c80849e62b0",
            "hailfinder.bif.gz": "efa122a88c4b550569ec821c7879bed9007f2b1e012e1ea52ea26069c7f26099",
            "hepar2.bif.gz": "f98d4a65c496b79d76b15797e6a6cbeafaff32a17d66a844d8e5b9506d379fcd",
            "insurance.bif.gz": "92bcecd1b85387726af564bf1b50cd400ddbbea1b017303cc54d4654e50a8971",
            "link.bif.gz": "5d09fd46f685fed1ba795f7cd944e1860938175c541826a2a342ffa5ec6ed1c5",
            "mildew.bif.gz": "06f4342f1bef2eef67988b41382b327ca7bf4b308841534c9a3b3c48ff61189a",
            "munin.bif.gz": "97e26c9dbf0635008434438084e94ca20250984b1c769f4666fed6bf912c3eae",
            "munin1.bif.gz": "d1917abbba1064e6b75f90bf9eb07d76779237b4a0698aecaac6d5b8bdfe1b2c",
            "munin2.bif.gz": "4679fae4e67ee892eb2fd94437777d8d8adc8fea97205065ec7f20aec0396f1a",
            "munin3.bif.gz": "4eb186935c12d47869d36403ab813af97d34b88dde66b79c0047386445058bf5",
            "munin4.bif.gz": "d01410d1f04631462927b160a518a030cf5f24ca57cdbbc259f29d84836d955b",
            "pathfinder.bif.gz": "1b23ccf9d398471c1c8e6353e8d11d8e3579537adc6bbbf535806d781f6e8e7f",
            "pigs.bif.gz": "618c72433d8814e5197f78938e9ef75cf91dfb9a7463952682b3703c8eef68f1",
            "sachs.bif.gz": "ed1830fbde101ed50cce3c7a3c8cbf1d2f5225531cf35ff09fb3cec0af101bce",
            "survey.bif.gz": "676e1fe97efec18b31d1a0a3bcd9b7d52985129c60a78b69172c99e82902ef96",
            "water.bif.gz": "5d506713902c9ea625fae7cd84d0a6f9fad980d5cca926281adeecdd0c039db3",
            "win95pts.bif.gz": "a4987cf8c09d3aa034504b03ea3e5dc01c57ca20228e2bd79ec9a861c3aef684",
        },
    ),
    "sachs": (
        "https://github.com/cmu-phil/example-causal-datasets (real/sachs); edges as lists source,target",
        {
            "conditions.csv": "33f88950aaeb47612f6d583b88a0a1c0f7ea550e102b8bafc17bcdf8345a419b",
            "edges_consensus_20.csv": "c373c7f988e69a0fe2fdf029b8329294b11954d21c325f3bfe3554d5d5a7fa2f",
            "edges_dag_17.csv": "e3c27b1dd0f2dc10017f95c5025cb550f3bbfca20aedcc4aa25c2b9f30df454f",
            "sachs_all_7466.csv": "0593ea789a36391ef3d5dba3a18a755aff70c32fb9d5caf71bfdb9e32b8d3ae4",
        },
    ),
    "dream4": (
        "https://www.synapse.org/Synapse:syn3049712 (docs/reproduce.md has the form)",
        {
            "size100_1.npz": "75d9e6a5bf9f1fede915e4911ac8cd73f0c7fe80d266fa35b01d10ce69c79ad1",
            "size100_2.npz": "4166e23f17338af7fe1a659a49f191df1a0ba1e8a9831d3950ca293306db97fe",
            "size100_3.npz": "e56118fbe3ec57fcef0e0a3c6ff3cb636aa84cf8dfca1a62f23f79461fad4f38",
            "size100_4.npz": "7de0451081748b11084eebb9e1bdbad8df45761fdf5caa655aea295f1490ac62",
            "size100_5.npz": "cc05588b1f024863483606d5d48948651e3f6e9c472c8456715c9a3e276dff5f",
        },
    ),
    "netsim": (
        "https://www.fmrib.ox.ac.uk/datasets/netsim (docs/reproduce.md has the form)",
        {
            "sim1.npz": "c3fedb1b41ca6eaa237c2f0c48a65998f1d27b59767a5f764c60154321b69b78",
            "sim2.npz": "007d5a7043e5db19b8018e16e5cb86ccf9cce1d5714f8740b49f0d43ba7d8b8d",
            "sim3.npz": "d24ef4e275a41cf294a49f058cb4b4d12db9bc45ada99216b58c0e821fb01e84",
        },
    ),
    "tabular": (
        "UCI Adult, Kaggle GiveMeSomeCredit, MNIST (docs/reproduce.md has the form)",
        {
            "adult.csv.gz": "e54565c7b58b322320e70ea92390e40f9e2ed25630c86a7eef7d5ca76a1b7201",
            "give_me_some_credit.npz": "79350097cc68f841a320c0ff67f7c14df50bd5f4d6e0c33b27cf5e912d779a7a",
            "mnist_5k.npz": "a22fe9fdb185e5a8dd93c5f3f8d142285e1403988a451c08122fee858dc18da2",
        },
    ),
    "debd": (
        "https://github.com/arranger1044/DEBD (docs/reproduce.md has the form)",
        {
            "accidents.npz": "d8c1896c7a5b01c52c8f0f7bd3f058c67a757b3b026fba87a1f6dbd155b9d217",
            "baudio.npz": "469241367bd13dd62206bc3d4e1da380a46e7af5d33da37e3797a6cc0a83b5f9",
            "bnetflix.npz": "187d73cdb65e5bdcf4922d937183b25850f4ce09ec3ef5cfd4bff918c089054a",
            "dna.npz": "702b3710b680e94465f2c567a76f2db94cbece9254d41b709843885df2ccd191",
            "jester.npz": "17e18344fabbfc2f75dc97ed910675d7be1c73814e1545f129c3b5b356e92d62",
            "mushrooms.npz": "0680f53a95bf3e398c49b0311debe4db481facebdd5ff071388b961e23e1f23c",
            "nltcs.npz": "15b3d1168af44a83789027c2f6955f8637d916ad5fba7fbe3a6290e8ae109cd3",
            "plants.npz": "11a980726ef75d07c9ee6a9a1a8a14dd88fdb55b5099caf7738b235b74f21a85",
        },
    ),
}
