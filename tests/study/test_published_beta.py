"""β of Eq. 8 per data set, against the divisors of the KL term in the published program."""

from pvera.report import published
from pvera.study.protocol import PUBLISHED_BETA

#: The divisors' powers of ten.
POWERS = {
    6: "cifar clevr_count diabetic_retinopathy eurosat patch_camelyon resisc45 smallnorb_azi smallnorb_ele",
    8: "clevr_dist dsprites_loc oxford_flowers102 svhn",
    10: "dsprites_ori",
    12: "kitti oxford_iiit_pet sun397",
    16: "caltech101 dmlab dtd",
}


def test_beta_is_the_inverse_of_the_divisor_on_each_of_the_19_data_sets():
    expected = {name: 1 / 10**power for power, names in POWERS.items() for name in names.split()}
    assert expected == PUBLISHED_BETA and expected.keys() == set(published.DATASETS) and len(expected) == 19
