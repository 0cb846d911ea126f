import type { Volume } from '../api/types';
import { claimOf } from '../lib/volume';

// VolumeName calls a volume by its claim, with its own name smaller after it; by its own name if it has no claim.
export function VolumeName({ volume }: { volume: Volume }) {
  const claim = claimOf(volume);
  if (claim === '') return <>{volume.name}</>;
  return (
    <>
      <span className="claim">{claim}</span> <span className="volume-id">{volume.name}</span>
    </>
  );
}
