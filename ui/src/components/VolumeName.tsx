import type { Volume } from '../api/types';
import { claimOf } from '../lib/volume';

// VolumeName shows the claim of a volume, followed by the volume's own name in a smaller size. It shows only the
// volume's name if there is no claim.
export function VolumeName({ volume }: { volume: Volume }) {
  const claim = claimOf(volume);
  if (claim === '') return <>{volume.name}</>;
  return (
    <>
      <span className="claim">{claim}</span> <span className="volume-id">{volume.name}</span>
    </>
  );
}
